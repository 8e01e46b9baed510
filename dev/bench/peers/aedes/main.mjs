// peer-aedes: serves MQTT with the library aedes on a port of the loopback, for `cargo xtask bench brokers`.
import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { Aedes } from 'aedes'

const [port] = process.argv.slice(2)
if (port === '--version') {
  const manifest = new URL('./node_modules/aedes/package.json', import.meta.url)
  const { version } = JSON.parse(readFileSync(manifest, 'utf8'))
  console.log(`aedes ${version}, Node ${process.version}`)
} else {
  // Clients that connect all at once wait in a queue that is 42 long without this.
  const broker = await Aedes.createBroker({ queueLimit: 65535, maxInflightInbound: 0 })
  const server = createServer({ noDelay: true }, broker.handle)
  server.listen({ port: Number(port), host: '127.0.0.1', backlog: 4096 })
  process.on('SIGTERM', () => process.exit(0))
}
