// A second plugin, of the tests, in OpenCode 2: writes down what happens to the sessions, as
// OpenCode 1 tells of it.
import { appendFileSync } from "node:fs"

const MAPPED = {
  "session.created": ({ sessionID, parentID }) => ({ info: { id: sessionID, parentID } }),
  "session.deleted": ({ sessionID }) => ({ info: { id: sessionID } }),
  "session.execution.succeeded": ({ sessionID }) => ({ sessionID }),
  "session.execution.failed": (data) => data,
  "session.inbox.enqueued": (data) => data,
  "session.tool.progress": (data) => data,
}

export default {
  id: "watch",
  async setup(ctx) {
    const events = new AbortController()
    const listen = async () => {
      for await (const { type, data } of ctx.event.subscribe({ signal: events.signal })) {
        const properties = MAPPED[type]?.(data)
        if (properties) appendFileSync(process.env.WATCHED, JSON.stringify({ type, properties }) + "\n")
      }
    }
    listen().catch(() => {})
    return async () => events.abort()
  },
}
