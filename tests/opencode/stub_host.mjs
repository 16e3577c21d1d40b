// A host such as OpenCode 2, as far as a plugin sees it, for what the real one does not do on
// demand. Reads commands from standard input, answers each; one JSON object a line. Its own tools
// only say that they ran on the host.
import { createInterface } from "node:readline"
import { join } from "node:path"
import { pathToFileURL } from "node:url"

const plugin = process.argv[2] // the plugin's directory
const CLEANUP_MS = 3_000
const OWN = ["shell", "read", "write", "edit", "patch", "glob", "grep", "question", "skill",
  "subagent", "webfetch", "websearch", "browser_tabs_list", "brand_new"]
const locations = new Map() // directory: Location
const sessions = new Map() // id: what session.get() tells
let modules = 0

// One directory with its own instance of the plugin.
class Location {
  constructor({ directory, project, fails = [], skips = [], late = [] }) {
    Object.assign(this, { directory, project, fails, skips, late })
    this.undo()
    this.state = "loading"
    this.log = []
    this.aborted = 0
  }

  // What a plugin has registered goes with it.
  undo() {
    this.transforms = []
    this.hooks = { context: [], "execute.before": [] }
    this.streams = new Set()
    this.disabled = false
  }

  fail(error) {
    this.undo()
    this.state = `failed: ${error.message}`
  }

  async load() {
    try {
      const url = `${pathToFileURL(join(plugin, "index.js"))}?${++modules}`
      const { default: loaded } = await import(url)
      if (!loaded?.id || !loaded.setup) throw new Error("Plugin must export id and setup")
      this.cleanup = await loaded.setup(this.context())
      if (this.state === "loading") this.state = "active"
    } catch (error) {
      this.fail(error)
    }
  }

  may(api) {
    if (this.fails.includes(api)) throw new Error(`${api} is broken`)
  }

  registry() {
    const own = (name) => ({ name, id: name, description: "the host's own", options: {}, input: {},
      execute: async () => ({ content: `HOST ${name}`, output: { answers: [] } }) })
    const tools = new Map(OWN.map((name) => [name, own(name)]))
    const draft = {
      list: () => [...tools.values()],
      get: (id) => tools.get(id),
      remove: (id) => tools.delete(id),
      update: (id, change) => tools.has(id) && change(tools.get(id)),
      add: (tool) => {
        const valid = /^[A-Za-z0-9_-]+$/.test(tool.name) && typeof tool.input === "object"
        if (valid && !this.skips.includes(tool.name)) tools.set(tool.name, { ...tool, id: tool.name })
        else this.log.push(`ERROR skipped ${tool.name}`)
      },
    }
    this.replays = (this.replays ?? 0) + 1
    try {
      for (const transform of this.transforms) transform(draft)
    } catch (error) {
      this.fail(error)
      return this.registry()
    }
    for (const name of this.late) draft.add({ ...own(name), description: "of another plugin" })
    return tools
  }

  context() {
    const hook = (api) => async (name, callback) => {
      this.may(`${api}.hook`)
      this.hooks[name].push(callback)
    }
    return {
      app: { name: "stub", version: "2", channel: "test" },
      location: { directory: this.directory, project: this.project },
      tool: {
        hook: hook("tool"),
        list: async () => { this.may("tool.list"); return [...this.registry().values()] },
        transform: async (change) => {
          this.may("tool.transform")
          this.transforms.push(change)
          this.registry()
        },
      },
      agent: {
        get: async () => ({ data: { permissions: [{ action: "*", resource: "*", effect: "allow" }] } }),
        transform: async (change) => {
          this.may("agent.transform")
          this.agent = { id: "build", permissions: [] }
          change({ list: () => [this.agent], update: (_id, update) => update(this.agent) })
        },
      },
      mcp: { list: async () => { this.may("mcp.list"); return { data: [] } } },
      session: {
        hook: hook("session"),
        get: async ({ sessionID }) => {
          if (!sessions.has(sessionID)) throw new Error("there is no such session")
          return sessions.get(sessionID)
        },
      },
      event: { subscribe: ({ signal }) => { this.may("event.subscribe"); return this.stream(signal) } },
    }
  }

  async *stream(signal) {
    const stream = { waiting: [], wake: () => {} }
    this.streams.add(stream)
    signal.addEventListener("abort", () => { this.aborted += 1; stream.wake() })
    while (!signal.aborted) {
      while (stream.waiting.length) yield stream.waiting.shift()
      stream.idle = true
      await new Promise((resolve) => { stream.wake = resolve })
      stream.idle = false
    }
  }
}

const COMMANDS = {
  async open(options) {
    const location = new Location(options)
    locations.set(options.directory, location)
    await location.load()
    return { state: location.state, log: location.log, agent: location.agent }
  },
  session({ id, directory, parentID }) {
    sessions.set(id, { id, parentID, location: { directory } })
  },
  set({ directory, ...changes }) { // what fails, is skipped, or comes of other plugins, from now on
    Object.assign(locations.get(directory), changes)
  },
  tools({ directory }) {
    const tools = locations.get(directory).registry().values()
    return Object.fromEntries([...tools].map(({ id, description }) => [id, description]))
  },
  async turn({ directory, sessionID }) {
    const turn = { sessionID, system: [], tools: { execute: {} } }
    for (const hook of locations.get(directory).hooks.context) await hook(turn)
    return turn.system.map(({ text }) => text).join("\n")
  },
  async call({ directory, sessionID, tool, input = {} }) {
    const location = locations.get(directory)
    const event = { tool, input, sessionID, agent: "build", id: "c", messageID: "m" }
    for (const hook of location.hooks["execute.before"]) await hook(event)
    const found = location.registry().get(event.tool)
    if (!found) throw new Error(`there is no tool ${event.tool}`)
    const signal = new AbortController().signal
    const { content } = await found.execute(event.input, { ...event, signal, progress() {} })
    return typeof content === "string" ? content : content.map(({ text }) => text).join("\n")
  },
  async emit({ event }) { // events of all Locations come to every instance
    const streams = [...locations.values()].flatMap(({ streams }) => [...streams])
    for (const stream of streams) {
      stream.waiting.push(event)
      stream.wake()
    }
    if (event.type === "session.deleted") sessions.delete(event.data.sessionID)
  },
  async close({ directory }) {
    const location = locations.get(directory)
    location.registry() // once more at the end
    const late = new Promise((resolve) => { setTimeout(resolve, CLEANUP_MS, "late").unref() })
    const ended = await Promise.race([location.cleanup?.(), late])
    if (ended === "late") process.kill(process.pid, "SIGKILL")
    return { state: location.state, aborted: location.aborted, replays: location.replays }
  },
  async older() { // what OpenCode 1.18.33 gives to `setup` after it has called `server`
    const { default: loaded } = await import(pathToFileURL(join(plugin, "index.js")))
    const keys = ["options", "agent", "aisdk", "catalog", "command", "integration", "plugin", "skill"]
    return (await loaded.setup(Object.fromEntries(keys.map((key) => [key, {}])))) === undefined
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...options } = JSON.parse(line)
  const answer = await Promise.resolve().then(() => COMMANDS[command](options)).then(
    (value) => ({ value: value ?? null }), (error) => ({ error: error.message }))
  process.stdout.write(JSON.stringify(answer) + "\n")
}
process.exit(0)
