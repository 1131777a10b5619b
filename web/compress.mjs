/** In: built files of a folder. Out: a .gz beside each, which the server sends unchanged, so that it compresses nothing for a request. */
import { readFile, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { gzipSync } from "node:zlib";

/** @param {string} folder @param {string[]} names @returns {Promise<number>} the bytes of all, gzip */
export async function compress(folder, names) {
  let size = 0;
  for (const name of names) {
    const compressed = gzipSync(await readFile(resolve(folder, name)), { level: 9 });
    await writeFile(resolve(folder, `${name}.gz`), compressed);
    size += compressed.length;
  }
  return size;
}
