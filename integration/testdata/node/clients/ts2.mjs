// A client on the TypeScript SDK 2.4.0, as an application would write it: the
// base StdioClientTransport, so that negotiation starts a probe sibling.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import * as z from 'zod/v4';
import { notificationMethods, reverseMethods } from './driver.mjs';

const modes = { auto: 'auto', legacy: 'legacy', pin: { pin: '2026-07-28' } };

export function make(seat) {
  const listChanged = {
    tools: { onChanged: (error, items) => seat.emit('listChanged', { kind: 'tools', error: error?.message, names: items?.map((item) => item.name) }) },
    prompts: { onChanged: (error, items) => seat.emit('listChanged', { kind: 'prompts', error: error?.message, names: items?.map((item) => item.name) }) },
    resources: { onChanged: (error, items) => seat.emit('listChanged', { kind: 'resources', error: error?.message, names: items?.map((item) => item.name) }) }
  };

  const client = new Client(
    { name: 'ts2-client', version: '2.4.0' },
    {
      capabilities: seat.capabilities,
      versionNegotiation: { mode: modes[seat.mode] },
      ...(seat.listChanged && { listChanged })
    }
  );

  for (const method of notificationMethods) {
    if (seat.listChanged && method.endsWith('list_changed')) continue;
    client.setNotificationHandler(method, ({ params }) => seat.emit('notification', { method, params }));
  }
  client.fallbackNotificationHandler = async ({ method, params }) => seat.emit('notification', { method, params });
  for (const method of reverseMethods) {
    client.setRequestHandler(method, ({ params }, ctx) => seat.answer(method, params, ctx.mcpReq.signal));
  }
  client.onerror = (error) => seat.emit('error', { message: error.message });
  client.onclose = () => seat.emit('close');

  const listens = new Map();
  let nextListen = 1;

  return {
    connect: async (_, request) => {
      const transport = new StdioClientTransport(seat.server);
      const began = performance.now();
      await client.connect(transport, request);
      return {
        era: client.getProtocolEra(),
        version: client.getNegotiatedProtocolVersion(),
        server: client.getServerVersion(),
        capabilities: client.getServerCapabilities(),
        instructions: client.getInstructions(),
        pid: transport.pid,
        ms: performance.now() - began
      };
    },
    listTools: ({ params }, request) => client.listTools(params, { ...request, cacheMode: 'refresh' }),
    listResources: ({ params }, request) => client.listResources(params, { ...request, cacheMode: 'refresh' }),
    listResourceTemplates: ({ params }, request) => client.listResourceTemplates(params, { ...request, cacheMode: 'refresh' }),
    listPrompts: ({ params }, request) => client.listPrompts(params, { ...request, cacheMode: 'refresh' }),
    callTool: ({ params }, request) => client.callTool(params, request),
    readResource: ({ params }, request) => client.readResource(params, { ...request, cacheMode: 'refresh' }),
    getPrompt: ({ params }, request) => client.getPrompt(params, request),
    complete: ({ params }, request) => client.complete(params, request),
    ping: (_, request) => client.ping(request),
    setLevel: ({ level }, request) => client.setLoggingLevel(level, request),
    subscribe: ({ params }, request) => client.subscribeResource(params, request),
    unsubscribe: ({ params }, request) => client.unsubscribeResource(params, request),
    listen: async ({ filter }, request) => {
      const subscription = await client.listen(filter, request);
      const listen = nextListen++;
      listens.set(listen, subscription);
      void subscription.closed.then((how) => seat.emit('listenClosed', { listen, how }));
      return { listen, honoured: subscription.honoredFilter };
    },
    unlisten: ({ listen }) => listens.get(listen).close(),
    request: ({ method, params }, request) => client.request({ method, params }, z.looseObject({}), request),
    notify: ({ method, params }) => client.notification({ method, params }),
    rootsChanged: () => client.sendRootsListChanged(),
    close: () => client.close()
  };
}
