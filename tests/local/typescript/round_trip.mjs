// The TypeScript SDK's round trip through a Daytona. Takes its address from DAYTONA_TEST_API_URL
// and DAYTONA_TEST_API_KEY, and the SDK's package folder as argument; prints one JSON object with
// what it saw. Bytes are told in base64.
import { createRequire } from 'node:module'
import { Readable } from 'node:stream'

const { Daytona } = createRequire(process.argv[2] + '/')('@daytona/sdk')

const base64 = (bytes) => Buffer.from(bytes).toString('base64')

async function collect(stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks)
}

// The class name and status of the error that an action ends with.
async function failure(action) {
  try {
    await action()
    return null
  } catch (error) {
    return { name: error.constructor.name, status: error.statusCode ?? null, message: error.message }
  }
}

const daytona = new Daytona({
  apiKey: process.env.DAYTONA_TEST_API_KEY,
  apiUrl: process.env.DAYTONA_TEST_API_URL,
  target: 'local',
})
const seen = {}

const sandbox = await daytona.create({ labels: { suite: 'typescript' }, envVars: { GREETING: 'hello' }, autoStopInterval: 9 })
seen.created = { state: sandbox.state, labels: sandbox.labels, autoStopInterval: sandbox.autoStopInterval }
seen.same = (await daytona.get(sandbox.id)).id === sandbox.id
seen.listed = []
for await (const one of daytona.list({ labels: { suite: 'typescript' } })) seen.listed.push(one.id === sandbox.id)
seen.directories = [await sandbox.getWorkDir(), await sandbox.getUserHomeDir()]

const executed = await sandbox.process.executeCommand('echo "$GREETING $WORD"; pwd; echo err >&2; exit 3', '/tmp', { WORD: 'world' }, 20)
seen.executed = { exitCode: executed.exitCode, result: executed.result }
seen.timedOut = await failure(() => sandbox.process.executeCommand('sleep 60', undefined, undefined, 1))

const bytes = Buffer.from(Array.from({ length: 256 * 64 }, (_, i) => i % 256))
await sandbox.fs.uploadFile(bytes, 'up/bytes.bin')
await sandbox.fs.uploadFiles([
  { source: Buffer.from('ä'), destination: 'up/ünï "x".txt' },
  { source: Buffer.alloc(0), destination: '/tmp/empty' },
])
await sandbox.fs.uploadFileStream(Readable.from([bytes, bytes]), 'up/streamed.bin')
seen.downloaded = base64(await sandbox.fs.downloadFile('up/bytes.bin'))
seen.several = (await sandbox.fs.downloadFiles([{ source: 'up/ünï "x".txt' }, { source: 'up/none' }])).map((one) => ({
  source: one.source,
  result: one.result === undefined ? null : base64(one.result),
  code: one.errorDetails?.code ?? null,
}))
seen.streamed = base64(await collect(await sandbox.fs.downloadFileStream('up/streamed.bin')))
seen.files = (await sandbox.fs.listFiles('up')).map(({ name, size, isDir }) => ({ name, size, isDir }))
seen.missing = await failure(() => sandbox.fs.downloadFile('none'))
await sandbox.fs.createFolder('made', '755')
await sandbox.fs.moveFiles('up/bytes.bin', 'made/bytes.bin')
await sandbox.fs.setFilePermissions('made/bytes.bin', { mode: '600' })
seen.moved = (await sandbox.fs.getFileDetails('made/bytes.bin')).permissions
seen.found = (await sandbox.fs.searchFiles('.', '*.bin')).files
await sandbox.fs.deleteFile('made', true)
seen.gone = await failure(() => sandbox.fs.getFileDetails('made'))

await sandbox.process.createSession('s')
const first = await sandbox.process.executeSessionCommand('s', { command: 'cd /tmp && echo out && echo err >&2' })
seen.session = { exitCode: first.exitCode, stdout: first.stdout, stderr: first.stderr }
seen.kept = (await sandbox.process.executeSessionCommand('s', { command: 'pwd' })).stdout
const started = await sandbox.process.executeSessionCommand('s', {
  command: 'read line; echo got $line; echo err >&2; exit_code() { return 4; }; exit_code',
  runAsync: true,
  suppressInputEcho: true,
})
const heard = { stdout: '', stderr: '' }
const following = sandbox.process.getSessionCommandLogs(
  's',
  started.cmdId,
  (text) => (heard.stdout += text),
  (text) => (heard.stderr += text),
)
await sandbox.process.sendSessionCommandInput('s', started.cmdId, 'input')
await following
seen.followed = heard
seen.exitCode = (await sandbox.process.getSessionCommand('s', started.cmdId)).exitCode
seen.logs = await sandbox.process.getSessionCommandLogs('s', started.cmdId)
await sandbox.process.deleteSession('s')
seen.sessions = await sandbox.process.listSessions()

const access = await sandbox.createSshAccess(10)
seen.ssh = access.sshCommand.includes(access.token)
seen.validated = await failure(() => sandbox.validateSshAccess(access.token)) // for the gateway only
await sandbox.revokeSshAccess(access.token)

await sandbox.stop()
seen.stopped = [sandbox.state, await failure(() => sandbox.process.executeCommand('true'))]
await sandbox.start()
seen.started = [sandbox.state, (await sandbox.process.executeCommand('cat up/ünï*')).result]
await sandbox.delete()
// A deleted sandbox is shown for a while.
while (!(seen.deleted = await failure(() => daytona.get(sandbox.id)))) await new Promise((resolve) => setTimeout(resolve, 50))
seen.wrongKey = await failure(() => new Daytona({ apiKey: 'wrong', apiUrl: process.env.DAYTONA_TEST_API_URL, target: 'local' }).create())

await new Promise((resolve) => process.stdout.write(JSON.stringify(seen) + '\n', resolve))
process.exit(0) // the SDK's event channel would keep the process alive
