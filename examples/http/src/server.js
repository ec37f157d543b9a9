import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import * as z from 'zod';
import { describe } from './describe.js';

// The sessions of all clients share this, since there is one server.
let count = 0;

function newServer() {
  const server = new McpServer({ name: 'counter', version: '1.0.0' });
  server.registerTool(
    'add',
    { description: 'Add to the counter', inputSchema: { by: z.number().int().default(1).describe('How much') } },
    ({ by }) => {
      count += by;
      return { content: [{ type: 'text', text: describe(count) }] };
    }
  );
  return server;
}

const transports = new Map();

async function transportFor(session) {
  if (session) return transports.get(session);
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => transports.set(id, transport),
    onsessionclosed: (id) => transports.delete(id)
  });
  await newServer().connect(transport);
  return transport;
}

async function handle(request, response) {
  const transport = request.url === '/mcp' && (await transportFor(request.headers['mcp-session-id']));
  if (!transport) return response.writeHead(404).end('not found');
  await transport.handleRequest(request, response);
}

const { values } = parseArgs({ options: { port: { type: 'string', default: '3000' } } });
createServer((request, response) => {
  handle(request, response).catch((error) => {
    console.error(error);
    if (!response.headersSent) response.writeHead(500);
    response.end();
  });
}).listen(Number(values.port), '127.0.0.1', () => console.error(`counter: listens on port ${values.port}`));
