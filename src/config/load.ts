// Reads the providers config from its file, once; what the text means is parsed elsewhere, and nothing is watched here.
import { readFile } from 'node:fs/promises'
import { errorMessage } from '../lib/errors.ts'
import { parseProvidersConfig, type ParsedProvidersConfig } from './providers-config.ts'

/** A file that cannot be read is one more way of being invalid. */
export async function loadProvidersConfig(file: string): Promise<ParsedProvidersConfig> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    return { kind: 'invalid', problems: [{ path: '', message: `cannot be read: ${errorMessage(error)}` }] }
  }
  return parseProvidersConfig(text)
}
