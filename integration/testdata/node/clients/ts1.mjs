// A client on the TypeScript SDK 1.32.2, as an application would write it.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import * as z from 'zod/v4';

export function make(seat) {
  const client = new Client({ name: 'ts1-client', version: '1.32.2' }, { capabilities: seat.capabilities });

  client.fallbackNotificationHandler = async ({ method, params }) => seat.emit('notification', { method, params });
  for (const schema of [CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema]) {
    client.setRequestHandler(schema, ({ method, params }, extra) => seat.answer(method, params, extra.signal));
  }
  client.onerror = (error) => seat.emit('error', { message: error.message });
  client.onclose = () => seat.emit('close');

  return {
    connect: async (_, request) => {
      const transport = new StdioClientTransport(seat.server);
      const began = performance.now();
      await client.connect(transport, request);
      return {
        era: 'legacy',
        version: '2025-11-25',
        server: client.getServerVersion(),
        capabilities: client.getServerCapabilities(),
        instructions: client.getInstructions(),
        pid: transport.pid,
        ms: performance.now() - began
      };
    },
    listTools: ({ params }, request) => client.listTools(params, request),
    listResources: ({ params }, request) => client.listResources(params, request),
    listResourceTemplates: ({ params }, request) => client.listResourceTemplates(params, request),
    listPrompts: ({ params }, request) => client.listPrompts(params, request),
    callTool: ({ params }, request) => client.callTool(params, undefined, request),
    readResource: ({ params }, request) => client.readResource(params, request),
    getPrompt: ({ params }, request) => client.getPrompt(params, request),
    complete: ({ params }, request) => client.complete(params, request),
    ping: (_, request) => client.ping(request),
    setLevel: ({ level }, request) => client.setLoggingLevel(level, request),
    subscribe: ({ params }, request) => client.subscribeResource(params, request),
    unsubscribe: ({ params }, request) => client.unsubscribeResource(params, request),
    request: ({ method, params }, request) => client.request({ method, params }, z.looseObject({}), request),
    notify: ({ method, params }) => client.notification({ method, params }),
    rootsChanged: () => client.sendRootsListChanged(),
    close: () => client.close()
  };
}
