// 200 uploads that were cancelled or cut leave nothing: no handle, no memory, and no volume that the next create does not clean.
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { instanceName } from '../../../src/provider/names.ts'
import { cachedImage, ownerOf } from './stub-world.ts'
import type { UploadFigures } from './upload-rounds.ts'

const rounds = 200
const batch = 20
const timeout = 240_000

it(`${rounds} cancelled and cut uploads leave nothing behind`, { timeout }, async () => {
  const script = join(import.meta.dirname, 'upload-rounds.ts')
  // a young generation that V8 enlarges as it likes, by 16 MiB and more at a time, would look like a slope
  const args = ['--expose-gc', '--max-semi-space-size=2', script, String(rounds), String(batch)]
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout })
  const figures = JSON.parse(stdout) as UploadFigures
  const heapGrowth = growth(figures.heapUsed)
  const dataGrowth = growth(figures.arrayBuffers)
  const rssGrowth = growth(figures.rss)
  process.stdout.write(
    `${rounds} cut uploads: heap ${perUpload(heapGrowth)}, data ${perUpload(dataGrowth)}, RSS ${perUpload(rssGrowth)} per upload; ` +
      `endings ${JSON.stringify(figures.endings)}\n`,
  )

  // every way in turn, and each was seen for what it was
  expect(Object.values(figures.ways).reduce((sum, times) => sum + times, 0)).toBe(rounds)
  expect(Object.keys(figures.ways)).toHaveLength(9)
  const codes = ['Cancelled', 'ImageDownloadFailed', 'LibvirtError', 'PoolFull', 'Unreachable', 'VolumeNotFound']
  expect(Object.keys(figures.endings).sort()).toEqual(codes)

  expect(figures.connectionsAfter).toBe(0)
  expect(figures.handlesAfter).toEqual(figures.handlesBefore)

  // what the last cut left, and what is left of it
  expect(figures.volumesBefore).toEqual(['base-tiny.qcow2'])
  const name = instanceName(ownerOf('good'))
  expect(figures.volumesAfter).toEqual([...cachedImage, `${name}-seed.iso`, `${name}.qcow2`])

  // One upload in nine that kept a chunk of its data, of 64 KiB, would be 7 KiB per upload.
  expect(dataGrowth).toBeLessThan(4 * 1024)
  expect(heapGrowth).toBeLessThan(16 * 1024)
  expect(rssGrowth).toBeLessThan(64 * 1024)
})

/** Bytes per upload from the early batches to the late ones. The first two warm code and caches. */
function growth(afterBatch: readonly number[]): number {
  expect(afterBatch).toHaveLength(rounds / batch)
  const early = Math.min(...afterBatch.slice(2, 5))
  const late = Math.min(...afterBatch.slice(-3))
  return (late - early) / (batch * (afterBatch.length - 5))
}

function perUpload(bytes: number): string {
  return `${(bytes / 1024).toFixed(1)} KiB`
}
