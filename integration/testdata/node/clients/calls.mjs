// A client on the TypeScript SDK 2.4.0 that measures its own small calls, so that
// no driver's time is among them.
//
//   node calls.mjs auto|legacy|modern URL
//   node calls.mjs auto|legacy|modern COMMAND ARG…
//
// Its first line is the milliseconds that its connect took, as a JSON array of one.
// Each line of its input is a number of calls, which it makes one after the other
// and answers with theirs. A second number is how long the text of each result is
// to be; without it that is a word.
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [mode, command, ...args] = process.argv.slice(2);
const print = (times) => process.stdout.write(`${JSON.stringify(times)}\n`);

const client = new Client(
  { name: 'bench', version: '2.4.0' },
  { versionNegotiation: { mode: mode === 'modern' ? { pin: '2026-07-28' } : mode } }
);
const began = performance.now();
await client.connect(
  /^https?:/.test(command)
    ? new StreamableHTTPClientTransport(new URL(command))
    : new StdioClientTransport({ command, args, stderr: 'inherit' })
);
print([performance.now() - began]);

for await (const line of createInterface({ input: process.stdin })) {
  const times = [];
  const [count, size] = line.split(' ').map(Number);
  const call = size ? { name: 'big', arguments: { n: size } } : { name: 'echo', arguments: { text: 'hello' } };
  for (let n = count; n > 0; n--) {
    const began = performance.now();
    const { content } = await client.callTool(call);
    times.push(performance.now() - began);
    if (content[0].text.length !== (size || 5)) throw new Error(`the result is ${JSON.stringify(content).slice(0, 300)}`);
  }
  print(times);
}
await client.close();
process.exit(0);
