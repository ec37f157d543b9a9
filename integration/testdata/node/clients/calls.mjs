// A client on the TypeScript SDK 2.4.0 that measures its own small calls, so that
// no driver's time is among them.
//
//   node calls.mjs legacy|modern URL
//   node calls.mjs legacy|modern COMMAND ARG…
//
// Each line of its input is a number of calls, which it makes one after the other
// and answers with their milliseconds as a JSON array.
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, command, ...args] = process.argv.slice(2);

const client = new Client(
  { name: 'bench', version: '2.4.0' },
  { versionNegotiation: { mode: era === 'modern' ? { pin: '2026-07-28' } : 'legacy' } }
);
await client.connect(
  /^https?:/.test(command)
    ? new StreamableHTTPClientTransport(new URL(command))
    : new StdioClientTransport({ command, args, stderr: 'inherit' })
);

for await (const line of createInterface({ input: process.stdin })) {
  const times = [];
  for (let n = Number(line); n > 0; n--) {
    const began = performance.now();
    const { content } = await client.callTool({ name: 'echo', arguments: { text: 'hello' } });
    times.push(performance.now() - began);
    if (content[0].text !== 'hello') throw new Error(`echo gave ${JSON.stringify(content)}`);
  }
  process.stdout.write(`${JSON.stringify(times)}\n`);
}
await client.close();
process.exit(0);
