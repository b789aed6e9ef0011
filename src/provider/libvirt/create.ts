// Makes an instance exist and run. Each step looks at what is there first, so that a repeat after any crash carries on.
import { abortReason, sleep } from '../../lib/clock.ts'
import { exhaustive } from '../../lib/exhaustive.ts'
import { ErrorCode, LibvirtError } from '../../wire/libvirt/errors.ts'
import type { CreateContext, CreateRequest, Mark } from '../contract.ts'
import { ProviderError } from '../errors.ts'
import { formatProviderID } from '../names.ts'
import { buildSeed } from '../nocloud/seed.ts'
import { judgeExisting, removeOldMarks, type Adoption } from './adoption.ts'
import type { LibvirtHost } from './config.ts'
import { domainUuid, domainXml, randomMac } from './domain-xml.ts'
import { nameKey, sharedLine, type Engine } from './engine.ts'
import { classifyInCreate, hasCode } from './errors.ts'
import { domainState, type Domain, type HostApi } from './host-api.ts'
import type { ImageInUse, ImageWish, Use } from './images.ts'
import { findNewInstance, instanceState, pausedError, type FoundInstance } from './instance.ts'
import { requireAcceptsNew, resolvePlacement, type ResolvedPlacement } from './placement.ts'
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
  /** Writes the intent down, once: before the first change. */
  readonly record: () => Promise<void>
}

/** @returns the providerID */
export async function createInstance(engine: Engine, request: CreateRequest, context: CreateContext): Promise<string> {
  const placement = resolvePlacement(engine.flavour.name, engine.config, request.placement)
  const { host } = placement
  const work: Work = {
    engine,
    request,
    context,
    placement,
    host,
    record: once(() => context.record({ target: host.name })),
  }
  tellResolved(work)
  try {
    return await createOn(work)
  } catch (thrown) {
    throw classifyInCreate(thrown, { target: host.name, signal: context.signal })
  }
}

/** Of the user-data the size only. */
function tellResolved(work: Work): void {
  const { engine, request, placement, host } = work
  const { image, machineType } = placement
  engine.log.trace(`${engine.flavour.subject} create resolved`, {
    ...aboutName(work),
    pool: host.pool,
    ...(host.nic.kind === 'bridge' ? { bridge: host.nic.bridge } : { network: host.nic.network }),
    machineType: request.placement.machineType,
    ...machineType,
    diskGiB: engine.config.diskSizeGiB,
    image: image.volume,
    firmware: image.firmware,
    cloudInitBytes: request.userData?.reveal().byteLength ?? 0,
  })
}

/**
 * The intent is recorded once the host has answered: a deletion asks every recorded target, and would wait for a host that
 * never let us in. A download is waited for with neither a place nor the lock; nor is another operator's turn at the image.
 */
async function createOn(work: Work): Promise<string> {
  const { engine, request, context, placement, host } = work
  const { signal } = context
  const slots = engine.slots.get(host.name)
  if (slots === undefined) throw new Error(`host ${host.name} has no limit of creates`)
  const wish = { host, choice: placement.image }
  // An image that this process has not met may take long to come, and its download need not wait for a place either.
  if (!engine.images.isKnown(wish) && !(await hasWhatItNeeds(work, wish))) await fetchImage(work, wish)
  for (;;) {
    const step = await slots.run(
      () => engine.names.run(nameKey(host, request.instanceName), () => createLocked(work, wish), signal),
      signal,
    )
    switch (step.kind) {
      case 'made': {
        const providerID = formatProviderID({ host: host.name, domain: step.domain.name })
        engine.log.debug(`${engine.flavour.subject} domain ensured running`, {
          ...about(work, step.domain),
          id: providerID,
        })
        return providerID
      }
      case 'absent':
        await fetchImage(work, wish)
        break
      case 'busy':
        await engine.images.waitForTurn(wish, context)
        break
      default:
        exhaustive(step)
    }
  }
}

/** Whether no image has to be fetched: it is there, or the instance is. What is seen here without the lock only spares a wait. */
async function hasWhatItNeeds(work: Work, wish: ImageWish): Promise<boolean> {
  const { engine, request, context, host } = work
  const { signal } = context
  const api = await sharedLine(engine, host, signal)
  let noPool: LibvirtError | undefined
  try {
    const pool = await api.findPool(host.pool, { signal })
    if (await engine.images.isThere(wish, { api, pool }, signal)) return true
  } catch (thrown) {
    // An instance that runs needs neither pool nor image.
    if (!(thrown instanceof LibvirtError)) throw thrown
    noPool = thrown
  }
  const found = await findNewInstance(engine, api, request.instanceName, signal)
  if (found !== undefined && (await adopt(work, api, found)).kind === 'keep') return true
  requireAcceptsNew(engine.flavour.name, host)
  if (noPool === undefined) return false
  // A pool that does not run is told in words of its own.
  if (hasCode(noPool, ErrorCode.OPERATION_INVALID)) {
    await runningPool({ api, pool: await api.findPool(host.pool, { signal }), host: host.name, signal })
  }
  throw noPool
}

async function fetchImage(work: Work, wish: ImageWish): Promise<void> {
  const { engine, context } = work
  await work.record()
  await engine.images.ensure(wish, besidesImage(work), context)
}

function besidesImage({ engine }: Work): { readonly overlay: number; readonly seed: number } {
  return { overlay: engine.config.diskSizeGiB * gibBytes, seed: seedReserveBytes }
}

type Step =
  | { readonly kind: 'made'; readonly domain: Domain }
  /** Nothing was changed yet. */
  | Exclude<Use<never>, { readonly kind: 'used' }>

async function createLocked(work: Work, wish: ImageWish): Promise<Step> {
  const { engine, request, context, host } = work
  const { signal } = context
  const api = await sharedLine(engine, host, signal)
  const found = await findNewInstance(engine, api, request.instanceName, signal)
  if (found !== undefined) {
    const adoption = await adopt(work, api, found)
    if (adoption.kind === 'keep') {
      engine.log.debug(`${engine.flavour.subject} domain already defined`, about(work, found.domain))
      await work.record()
      return { kind: 'made', domain: await keepRunning(work, api, found.domain, adoption.mark) }
    }
  }
  requireAcceptsNew(engine.flavour.name, host)
  const pool = await api.findPool(host.pool, { signal })
  await requireSpace({ api, pool, host: host.name, signal }, besidesImage(work))
  await work.record()
  const used = await engine.images.use(wish, { api, pool }, context, async (image) => {
    const scope: VolumeScope = {
      ...{ api, pool, host: host.name, instanceName: request.instanceName, guard: context },
      volumes: new Map(image.volumes),
      keysArePaths: image.base.path === image.base.volume.key,
    }
    if (found !== undefined) await clearAway(work, scope, found)
    return await makeVolumes(work, scope, image)
  })
  if (used.kind !== 'used') return used
  return { kind: 'made', domain: await build(work, api, used.value) }
}

async function clearAway(work: Work, scope: VolumeScope, found: FoundInstance): Promise<void> {
  const { engine, context, host } = work
  engine.log.info('replacing an instance made from another spec', about(work, found.domain))
  await removeDomain(scope.api, found.domain, host.name, context)
  engine.known.forget(host.name, found.domain.uuid)
  await removeVolumes(scope)
}

/** Ours and of this spec, or it throws; ours whose disk is gone counts as one to replace. */
async function adopt(work: Work, api: HostApi, found: FoundInstance): Promise<Adoption> {
  const { engine, request, context, host } = work
  const scope = { host: host.name, flavour: engine.flavour, request, isLive: (uid: string) => context.isLive(uid) }
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
  await removeOldMarks(engine, api, domain, state !== 'stopped', context)
  switch (state) {
    case 'running':
      return domain
    case 'provisioning':
      await waitRunning(work, api, domain)
      return domain
    case 'paused':
      throw pausedError(domain, host.name, status)
    case 'stopped':
      await writeSeed(
        { ...(await volumeScope(work, api)), domainIsOurs: true },
        seedContent(work),
        work.request.owner,
        (uid) => context.isLive(uid),
      )
      await autostart(work, api, domain)
      await start(work, api, domain)
      engine.log.info('started an instance that was stopped', about(work, domain))
      return domain
  }
}

/** Later calls do nothing; after a failure the next one tries again. */
function once(act: () => Promise<void>): () => Promise<void> {
  let done = false
  return async () => {
    if (!done) await act()
    done = true
  }
}

interface Disks {
  readonly seedPath: string
  readonly overlayPath: string
  readonly imageDigest: string
}

/** Seed, then overlay; then {@link build}: after a crash between any two steps what is there says whose it is. */
async function makeVolumes(work: Work, scope: VolumeScope, image: ImageInUse): Promise<Disks> {
  const { engine, request, context } = work
  const { log, config } = engine
  const { base } = image
  const content = seedContent(work)
  const seedPath = await writeSeed(scope, content, request.owner, (uid) => context.isLive(uid))
  log.debug('seed volume uploaded', { ...aboutName(work), bytes: content.byteLength })
  image.requireHeld()
  const overlayPath = await ensureOverlay(scope, base, config.diskSizeGiB * gibBytes)
  log.debug('overlay volume created', { ...aboutName(work), base: base.volume.name })
  return { seedPath, overlayPath, imageDigest: base.digest }
}

async function build(work: Work, api: HostApi, disks: Disks): Promise<Domain> {
  const { engine, request, context, placement, host } = work
  const { log, flavour } = engine
  const { instanceName, owner } = request
  const mark: Mark = {
    ...owner,
    specHash: request.specHash,
    ...(placement.image.source.kind === 'catalogue' ? { image: placement.image.label } : {}),
    imageDigest: disks.imageDigest,
    createdAt: new Date(engine.clock.now()).toISOString(),
  }
  const xml = domainXml({
    name: instanceName,
    uuid: domainUuid(instanceName),
    mac: randomMac(engine.random),
    ...placement.machineType,
    firmware: placement.image.firmware,
    nic: host.nic,
    overlayPath: disks.overlayPath,
    seedPath: disks.seedPath,
    markNamespace: flavour.markNamespace,
    mark,
  })
  const domain = await api.defineDomain(xml, context)
  const defined = { ...about(work, domain), uid: owner.uid, firmware: placement.image.firmware }
  if (log.enabled('trace')) log.trace('domain defined', { ...defined, xml })
  else log.debug('domain defined', defined)
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
