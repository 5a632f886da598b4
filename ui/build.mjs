// Bundles each page into the folder of the Python package that serves it. `python ui/build.py` runs this with Node from
// a wheel; files get the same bytes on each run, so that two wheels of one commit are equal.
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const pages = JSON.parse(await readFile(join(here, "pages.json"), "utf8"));

for (const [page, folder] of Object.entries(pages)) {
  const from = join(here, "src", page);
  const to = join(here, "..", folder);
  await rm(to, { recursive: true, force: true });
  await mkdir(to, { recursive: true });
  const { metafile } = await build({
    absWorkingDir: here,
    entryPoints: { app: join(from, "main.tsx") },
    outdir: to,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none", // the licences are in a file of their own
    metafile: true,
    logLevel: "warning",
  });
  for (const name of await readdir(from)) {
    if (/\.(html|svg|png|ico)$/.test(name)) await copyFile(join(from, name), join(to, name));
  }
  await writeFile(join(to, "licenses.txt"), await licenses(metafile));
}

/** The licence texts of the packages whose code is in a bundle. */
async function licenses(metafile) {
  const names = Object.keys(metafile.inputs).map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]);
  const texts = [...new Set(names)].filter(Boolean).sort().map(async (name) => {
    const { version } = JSON.parse(await readFile(join(here, "node_modules", name, "package.json"), "utf8"));
    const text = await readFile(join(here, "node_modules", name, "LICENSE"), "utf8");
    return `${name} ${version}\n\n${text.trim()}\n`;
  });
  return (await Promise.all(texts)).join(`\n${"-".repeat(80)}\n\n`);
}
