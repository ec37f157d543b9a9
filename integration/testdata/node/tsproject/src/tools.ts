export const tools: Record<string, string> = { first: 'one' };
