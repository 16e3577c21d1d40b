// A third plugin, of some tests: a clock in OpenCode's own loop, which writes down where it stood
// still, and when tools began and ended.
import { appendFileSync } from "node:fs"

const BEAT_MS = 5
const note = (what) => {
  const at = performance.timeOrigin + performance.now()
  appendFileSync(process.env.TICKS, JSON.stringify({ at, ...what }) + "\n")
}

export default async () => {
  let last = performance.now()
  let beats = 0
  setInterval(() => {
    const now = performance.now()
    const gap = now - last
    last = now
    beats += 1
    if (gap > 4 * BEAT_MS || beats % 20 === 0) note({ gap, beats })
  }, BEAT_MS).unref()
  return {
    "tool.execute.before": async ({ tool }) => note({ begun: tool }),
    "tool.execute.after": async ({ tool }) => note({ ended: tool }),
  }
}
