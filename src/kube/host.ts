// Hosts handlers on @dot-i/k8s-operator's Operator, with everything replaced that cannot carry a production operator; the
// only file that imports that package. It decides nothing about any kind.
import { readFile } from 'node:fs/promises'
import framework, { type ResourceEvent, type ResourceMeta } from '@dot-i/k8s-operator'
import type { V1CustomResourceDefinitionVersion } from '@kubernetes/client-node'
import { parse } from 'yaml'
import type { Random } from '../lib/backoff.ts'
import type { Clock } from '../lib/clock.ts'
import { errorMessage, toError } from '../lib/errors.ts'
import type { Logger } from '../observe/logger.ts'
import type { KubeClient } from './client.ts'
import { KubeError, isAlreadyExists, isConflict } from './errors.ts'
import { resourcePath, typeId, type KubeObject, type NewObject, type Resource, type ResourceType } from './object.ts'
import { Reflector, type EventKind, type ReflectorMetrics, type ReflectorTiming } from './reflector.ts'

export type { ResourceEvent, ResourceMeta }

// The package is CommonJS with an `__esModule` mark, which Node does not unwrap.
const { default: Operator, ResourceMetaImpl, ResourceEventType } = framework

export interface OperatorHostOptions {
  readonly client: KubeClient
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
}

export interface WatchRegistration<T extends Resource> {
  readonly type: ResourceType
  /** Left out: all namespaces. */
  readonly namespace?: string | undefined
  readonly labelSelector?: string | undefined
  /** Called in order, after the store has the change. Usually `queue.add(key)`. What it throws is logged. */
  readonly onEvent?: (kind: EventKind, object: T) => void
  readonly metrics?: ReflectorMetrics
  readonly timing?: Partial<ReflectorTiming>
}

/** Calls of `deleteAction` and of the write after it share nothing: once done, the action is not repeated for a conflict. */
const maxFinalizerAttempts = 5

const customResourceDefinitions: ResourceType = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
  kind: 'CustomResourceDefinition',
  namespaced: false,
}

/**
 * The base class's constructor loads a kubeconfig of its own, which must be readable and is then not used: all requests
 * go through the client given here.
 */
export class OperatorHost extends Operator {
  readonly #client: KubeClient
  readonly #options: OperatorHostOptions
  readonly #log: Logger
  readonly #types = new Map<string, ResourceType>()
  readonly #reflectors: { start(): void; stop(): Promise<void>; readonly synced: Promise<void> }[] = []
  #started = false
  #stopping: Promise<void> | undefined

  constructor(options: OperatorHostOptions) {
    const log = options.logger
    super({
      debug: (message) => log.debug(message),
      info: (message) => log.info(message),
      warn: (message) => log.warn(message),
      error: (message) => log.error(message),
    })
    this.#client = options.client
    this.#options = options
    this.#log = log
    if (options.client.kubeConfig !== undefined) this.kubeConfig = options.client.kubeConfig
  }

  /** Registers a watch; it opens with {@link start}, or at once after that. */
  watch<T extends Resource>(registration: WatchRegistration<T>): Reflector<T> {
    const { type } = registration
    const { clock, random } = this.#options
    const reflector = new Reflector<T>({ ...registration, client: this.#client, clock, random, logger: this.#log })
    this.#types.set(typeId(type), type)
    this.#reflectors.push(reflector)
    if (this.#started) reflector.start()
    return reflector
  }

  /** Opens the registered watches. Resolves at once: whether the first lists are in, {@link synced} tells. */
  override async start(): Promise<void> {
    await super.start()
  }

  protected override init(): Promise<void> {
    this.#started = true
    for (const reflector of this.#reflectors) reflector.start()
    return Promise.resolve()
  }

  /** Resolves when every registered watch has its first complete list. Pending for ever when stopped before that. */
  async synced(): Promise<void> {
    await Promise.all(this.#reflectors.map((reflector) => reflector.synced))
  }

  /** Begins to close the watches; {@link stopped} tells when they are. */
  override stop(): void {
    this.#stopping ??= Promise.all(this.#reflectors.map((reflector) => reflector.stop())).then(() => undefined)
  }

  /** Resolves when the watches are closed. Stops them first if need be. */
  async stopped(): Promise<void> {
    this.stop()
    await this.#stopping
  }

  /** The framework's own way to watch, for handlers written against it. Kinds other than core ones must have been registered by {@link watch} for their meta to be written to. */
  protected override watchResource(
    group: string,
    version: string,
    plural: string,
    onEvent: (event: ResourceEvent) => Promise<void>,
    namespace?: string,
  ): Promise<void> {
    const id = typeId({ group, version, plural, kind: '', namespaced: true })
    const type = this.#types.get(id) ?? { group, version, plural, kind: '', namespaced: namespace !== undefined }
    this.watch<KubeObject>({
      type,
      namespace,
      onEvent: (kind, object) => {
        this.#forward(kind, plural, object, onEvent)
      },
    })
    return Promise.resolve()
  }

  #forward(kind: EventKind, plural: string, object: KubeObject, onEvent: (event: ResourceEvent) => Promise<void>) {
    const event = frameworkEvent(kind, plural, object)
    onEvent(event).catch((error: unknown) => {
      this.#log.error(`an event handler failed: ${errorMessage(error)}`, { error: toError(error) })
    })
  }

  /**
   * The framework's finalizer helper: adds the finalizer to an object that lacks it, or runs `deleteAction` for one that
   * is being deleted and then takes the finalizer away. Other writers are met by reading again; a `deleteAction` that
   * has run is not run again for that.
   * @returns true when nothing else is to be done with this state of the object
   * @throws KubeError; what `deleteAction` threw
   */
  async handleFinalizer<T extends Resource>(
    type: ResourceType,
    object: T,
    finalizer: string,
    deleteAction: (object: T) => Promise<void>,
    signal?: AbortSignal,
  ): Promise<boolean> {
    this.#types.set(typeId(type), type)
    let current = object
    let actionDone = false
    for (let attempts = 1; ; attempts++) {
      // The helper appends to the list of finalizers of the very object it is given.
      const event = frameworkEvent('modified', type.plural, structuredClone({ ...current }))
      try {
        return await super.handleResourceFinalizer(event, finalizer, async () => {
          if (!actionDone) await deleteAction(current)
          actionDone = true
        })
      } catch (error) {
        if (!isConflict(error) || attempts >= maxFinalizerAttempts) throw error
        current = await this.#client.get<T>(type, object.metadata, signal)
        const { uid } = object.metadata
        if (current.metadata.uid !== uid) throw KubeError.uidChanged(type.kind, uid, current.metadata.uid)
      }
    }
  }

  protected override getCustomResourceApiUri(
    group: string,
    version: string,
    plural: string,
    namespace?: string,
  ): string {
    const server = this.kubeConfig.getCurrentCluster()?.server ?? ''
    const type: ResourceType = { group, version, plural, kind: '', namespaced: namespace !== undefined }
    return server + resourcePath(type, { namespace })
  }

  /** @throws KubeError; a conflict when the object is no longer at the meta's resourceVersion */
  protected override async setResourceFinalizers(meta: ResourceMeta, finalizers: string[]): Promise<void> {
    const body = { metadata: { resourceVersion: meta.resourceVersion, finalizers } }
    await this.#client.patch(this.#typeOf(meta), meta, { kind: 'merge', body })
  }

  /** @throws KubeError; a conflict when the object is no longer at the meta's resourceVersion */
  protected override async setResourceStatus(meta: ResourceMeta, status: unknown): Promise<ResourceMeta> {
    const { name, namespace, resourceVersion } = meta
    // A status PUT takes nothing of the metadata but its address and version, so the UID may be missing.
    const object: KubeObject = { metadata: { name, namespace, resourceVersion, uid: '' }, status }
    return metaOf(meta.id, await this.#client.replaceStatus(this.#typeOf(meta), object))
  }

  /** @throws KubeError; a conflict when the object is no longer at the meta's resourceVersion */
  protected override async patchResourceStatus(meta: ResourceMeta, status: unknown): Promise<ResourceMeta> {
    return metaOf(meta.id, await this.#client.patchStatus(this.#typeOf(meta), meta, status))
  }

  /** Creates the definition in a YAML file; one that exists already is left as it is. @throws KubeError */
  override async registerCustomResourceDefinition(crdFile: string): Promise<{
    group: string
    versions: V1CustomResourceDefinitionVersion[]
    plural: string
  }> {
    const definition = parse(await readFile(crdFile, 'utf8')) as NewObject & {
      apiVersion?: string
      spec: { group: string; versions: V1CustomResourceDefinitionVersion[]; names: { plural: string } }
    }
    if (definition.apiVersion !== 'apiextensions.k8s.io/v1') {
      throw new TypeError(`${crdFile} is not a CustomResourceDefinition of apiextensions.k8s.io/v1`)
    }
    try {
      await this.#client.create(customResourceDefinitions, definition)
    } catch (error) {
      if (!isAlreadyExists(error)) throw error
    }
    const { group, versions, names } = definition.spec
    return { group, versions, plural: names.plural }
  }

  #typeOf(meta: ResourceMeta): ResourceType {
    const type = this.#types.get(meta.id)
    if (type === undefined) throw new TypeError(`${meta.id} was not registered with this host`)
    // `watchResource` is told no kind; the objects are.
    return { ...type, kind: meta.kind }
  }
}

function metaOf(id: string, object: object): ResourceMeta {
  return ResourceMetaImpl.createWithId(id, object)
}

function frameworkEvent(kind: EventKind, plural: string, object: object): ResourceEvent {
  const eventTypes = {
    added: ResourceEventType.Added,
    modified: ResourceEventType.Modified,
    deleted: ResourceEventType.Deleted,
  }
  return { meta: ResourceMetaImpl.createWithPlural(plural, object), type: eventTypes[kind], object }
}
