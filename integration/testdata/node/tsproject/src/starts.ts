// @ts-ignore: the project has no types of Node's.
import { appendFileSync } from 'node:fs';

declare const process: { env: Record<string, string | undefined>; pid: number };

export function countStart(): void {
  const file = process.env['FIXTURE_STARTS'];
  if (file) appendFileSync(file, `start ${process.pid}\n`);
}
