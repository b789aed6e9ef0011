// Makes an instance exist and run. Each step looks at what is there first, so that a repeat after any crash carries on.
import { abortReason, sleep } from '../../lib/clock.ts'
import { LibvirtError } from '../../wire/libvirt/errors.ts'
import type { CreateContext, CreateRequest, Mark } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import { formatProviderID } from '../names.ts'
import { buildSeed } from '../nocloud/seed.ts'
import { judgeExisting, type Adoption } from './adoption.ts'
import type { LibvirtHost } from './config.ts'
import { domainUuid, domainXml, randomMac } from './domain-xml.ts'
import { nameKey, sharedLine, type Engine } from './engine.ts'
import { classifyInCreate } from './errors.ts'
import { domainState, type Domain, type HostApi } from './host-api.ts'
import type { BaseImage } from './image-cache.ts'
import { findInstance, instanceState, pausedError, type FoundInstance } from './instance.ts'
import { resolvePlacement, type ResolvedPlacement } from './placement.ts'
import { gibBytes, requireSpace, runningPool, seedReserveBytes } from './pool-space.ts'
import { removeDomain } from './remove.ts'
import { ensureOverlay, removeVolumes, writeSeed, type VolumeScope } from './volumes.ts'
import { overlayName } from './volume-xml.ts'

interface Work {
  readonly engine: Engine
  readonly request: CreateRequest
  readonly context: CreateContext
  readonly placement: ResolvedPlacement
  readonly host: LibvirtHost
}

/** @returns the providerID */
export async function createInstance(engine: Engine, request: CreateRequest, context: CreateContext): Promise<string> {
  const placement = resolvePlacement(engine.flavour.name, engine.config, request.placement)
  const { host } = placement
  const work: Work = { engine, request, context, placement, host }
  try {
    return await createOn(work)
  } catch (thrown) {
    throw classifyInCreate(thrown, { target: host.name, signal: context.signal })
  }
}

/**
 * The intent is recorded once the host has answered: a deletion asks every recorded target, and would wait for a host that
 * never let us in. The image comes before the place and the lock: waiting for a download holds neither. What was seen without
 * the lock is looked at again with it; when it changed so that an image is needed after all, all begins anew.
 */
async function createOn(work: Work): Promise<string> {
  const { engine, request, context, host } = work
  const { signal } = context
  const slots = engine.slots.get(host.name)
  if (slots === undefined) throw new Error(`host ${host.name} has no limit of creates`)
  for (;;) {
    const needed = await needsImage(work)
    await context.record({ target: host.name })
    const image = needed ? await obtainImage(work) : undefined
    const domain = await slots.run(
      () => engine.names.run(nameKey(host, request.instanceName), () => createLocked(work, image), signal),
      signal,
    )
    if (domain !== undefined) return formatProviderID({ host: host.name, domain: domain.name })
  }
}

async function needsImage(work: Work): Promise<boolean> {
  const { engine, request, context, host } = work
  const api = await sharedLine(engine, host, context.signal)
  const { signal } = context
  const found = await findInstance(api, request.instanceName, signal)
  if (found !== undefined && (await adopt(work, api, found)).kind === 'keep') return false
  const pool = await api.findPool(host.pool, { signal })
  await runningPool({ api, pool, host: host.name, signal })
  return true
}

async function obtainImage(work: Work): Promise<BaseImage> {
  const { engine, context, placement, host } = work
  const besides = { overlay: engine.config.diskSizeGiB * gibBytes, seed: seedReserveBytes }
  const image = await engine.images.ensure(host, placement.image, besides, context)
  const api = await sharedLine(engine, host, context.signal)
  const pool = await api.findPool(host.pool, { signal: context.signal })
  await requireSpace({ api, pool, host: host.name, signal: context.signal }, besides)
  return image
}

/** Undefined when an image turns out to be needed and there is none. */
async function createLocked(work: Work, image: BaseImage | undefined): Promise<Domain | undefined> {
  const { engine, request, context, host } = work
  const api = await sharedLine(engine, host, context.signal)
  const found = await findInstance(api, request.instanceName, context.signal)
  if (found !== undefined) {
    const adoption = await adopt(work, api, found)
    if (adoption.kind === 'keep') {
      engine.log.debug(`${engine.flavour.subject} domain already defined`, about(work, found.domain))
      return await keepRunning(work, api, found.domain, adoption.mark)
    }
    if (image === undefined) return undefined
    engine.log.info('replacing an instance made from another spec', about(work, found.domain))
    await removeDomain(api, found.domain, host.name, context)
    engine.known.forget(host.name, found.domain.uuid)
    await removeVolumes(await volumeScope(work, api))
  }
  return image === undefined ? undefined : await build(work, api, image)
}

/** Ours and of this spec, or it throws; ours whose disk is gone counts as one to replace. */
async function adopt(work: Work, api: HostApi, found: FoundInstance): Promise<Adoption> {
  const { engine, request, context, host } = work
  const scope = { host: host.name, flavour: engine.flavour.name, request, isLive: (uid: string) => context.isLive(uid) }
  const adoption = await judgeExisting(scope, found)
  if (adoption.kind === 'replace') return adoption
  const status = await api.domainStatus(found.domain, { signal: context.signal })
  if (instanceState(status) !== 'stopped') return adoption
  const pool = await api.findPool(host.pool, { signal: context.signal })
  const overlay = await api.findVolume(pool, overlayName(found.domain.name), { signal: context.signal })
  const made = await api.findVolume(pool, overlayName(request.instanceName), { signal: context.signal })
  return overlay === undefined && made === undefined ? { kind: 'replace' } : adoption
}

async function keepRunning(work: Work, api: HostApi, domain: Domain, mark: Mark | undefined): Promise<Domain> {
  const { engine, context, host } = work
  const status = await api.domainStatus(domain, { signal: context.signal })
  const state = instanceState(status)
  if (mark !== undefined) await api.setMark(domain, mark, state !== 'stopped', context)
  switch (state) {
    case 'running':
      return domain
    case 'provisioning':
      await waitRunning(work, api, domain)
      return domain
    case 'paused':
      throw pausedError(domain, host.name, status)
    case 'stopped':
      await writeSeed(await volumeScope(work, api), seedContent(work), work.request.owner, (uid) => context.isLive(uid))
      await autostart(work, api, domain)
      await start(work, api, domain)
      engine.log.info('started an instance that was stopped', about(work, domain))
      return domain
  }
}

/** Seed, overlay, domain, start: after a crash between any two of them what is there says whose it is. */
async function build(work: Work, api: HostApi, image: BaseImage): Promise<Domain> {
  const { engine, request, context, placement, host } = work
  const { log, flavour } = engine
  const { instanceName, owner } = request
  const scope = await volumeScope(work, api)
  const content = seedContent(work)
  const seedPath = await writeSeed(scope, content, owner, (uid) => context.isLive(uid))
  log.debug('seed volume uploaded', { ...aboutName(work), bytes: content.byteLength })
  const overlayPath = await ensureOverlay(scope, image, engine.config.diskSizeGiB * gibBytes)
  log.debug('overlay volume created', { ...aboutName(work), base: image.volume.name })
  const mark: Mark = {
    ...owner,
    specHash: request.specHash,
    imageDigest: image.digest,
    createdAt: new Date(engine.clock.now()).toISOString(),
  }
  const xml = domainXml({
    name: instanceName,
    uuid: domainUuid(instanceName),
    mac: randomMac(engine.random),
    ...placement.machineType,
    firmware: placement.image.firmware,
    bridge: host.bridge,
    overlayPath,
    seedPath,
    markNamespace: flavour.markNamespace,
    mark,
  })
  const domain = await api.defineDomain(xml, context)
  log.debug('domain defined', { ...about(work, domain), uid: owner.uid, firmware: placement.image.firmware })
  await autostart(work, api, domain)
  await start(work, api, domain)
  return domain
}

/**
 * An instance should come back with its host. Where the daemon refuses that, it is started when it is found stopped. Only its
 * refusal is tolerated: when the answer was lost, the repeat of the create sets it.
 */
async function autostart(work: Work, api: HostApi, domain: Domain): Promise<void> {
  try {
    await api.setAutostart(domain, work.context)
  } catch (thrown) {
    if (!(thrown instanceof LibvirtError)) throw thrown
    work.engine.log.warn('autostart not set', { ...about(work, domain), error: thrown.message })
  }
}

async function start(work: Work, api: HostApi, domain: Domain): Promise<void> {
  work.context.progress(`starting on host ${work.host.name}`)
  await api.startDomain(domain, work.context)
  work.engine.log.debug('domain started', about(work, domain))
  await waitRunning(work, api, domain)
}

/** A start is synchronous, so the first look normally says running. */
async function waitRunning(work: Work, api: HostApi, domain: Domain): Promise<void> {
  const { engine, context, host } = work
  const { clock, budgets } = engine
  const endsAt = clock.monotonic() + budgets.runningWaitMs
  for (;;) {
    const status = await api.domainStatus(domain, { signal: context.signal })
    switch (instanceState(status)) {
      case 'running':
        // On its way off is not running.
        if (status.state !== domainState.shutdown) return
        break
      case 'paused':
        throw pausedError(domain, host.name, status)
      case 'stopped':
        throw ProviderError.transient(
          `host ${host.name}: domain ${domain.name} went off right after its start; its log is ` +
            `/var/log/libvirt/qemu/${domain.name}.log on the host`,
          { code: 'StoppedAfterStart', target: host.name },
        )
      case 'provisioning':
        break
    }
    if (clock.monotonic() >= endsAt) {
      throw ProviderError.transient(
        `host ${host.name}: domain ${domain.name} was not running ${budgets.runningWaitMs / 1000} s after its start`,
        { code: 'NotRunning', target: host.name },
      )
    }
    if (context.signal.aborted) throw abortReason(context.signal)
    await sleep(clock, budgets.runningPollMs, context.signal)
  }
}

function seedContent(work: Work): Buffer {
  const { engine, request } = work
  const { vendorData, installGuestAgent } = engine.config
  return buildSeed({
    owner: { installation: request.owner.installation, uid: request.owner.uid },
    instanceName: request.instanceName,
    userData: request.userData?.reveal() ?? Buffer.alloc(0),
    ...(vendorData === undefined ? {} : { vendorData }),
    installGuestAgent,
    createdAt: new Date(engine.clock.now()),
  })
}

async function volumeScope(work: Work, api: HostApi): Promise<VolumeScope> {
  const { context, host, request } = work
  const pool = await api.findPool(host.pool, { signal: context.signal })
  return { api, pool, host: host.name, instanceName: request.instanceName, guard: context }
}

function aboutName(work: Work): { readonly host: string; readonly name: string } {
  return { host: work.host.name, name: work.request.instanceName }
}

function about(work: Work, domain: Domain): { readonly host: string; readonly name: string } {
  return { host: work.host.name, name: domain.name }
}
