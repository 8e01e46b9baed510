// Tests of the page in a browser:
//     node dev/page-tests/run.mjs [--binary UNBROKEN] [--only WORD] [--shots DIRECTORY]
// Without a binary the page is tested against the server of invented figures. The last line counts the tests.
import { parseArgs } from "node:util";
import { launch } from "./browser.mjs";
import { broker, mock } from "./targets.mjs";
import { takeAll } from "./shots.mjs";
import * as pages from "./tests/pages.mjs";
import * as identity from "./tests/identity.mjs";
import * as delivery from "./tests/delivery.mjs";
import * as use from "./tests/use.mjs";
import * as pagesOfBroker from "./tests/broker.mjs";

const { values } = parseArgs({
  options: { binary: { type: "string" }, only: { type: "string", default: "" }, shots: { type: "string" } },
});

const tests = [pages, identity, delivery, use, pagesOfBroker].flatMap((group) => Object.entries(group.tests));
// Some need what only one of the two has.
const kind = values.binary ? "binary" : "mock";
const wanted = tests.filter(([name, test]) => name.includes(values.only) && (test.needs ?? kind) === kind);
const counts = { passed: 0, failed: 0 };
const browser = await launch();
for (const [name, test] of wanted) {
  const target = values.binary ? await broker(values.binary) : await mock(test.state);
  const began = Date.now();
  let outcome = "passed";
  try {
    await test.run({ browser, target });
  } catch (error) {
    outcome = "failed";
    console.log(error.stack);
  } finally {
    target.stop();
    for (const context of browser.contexts()) await context.close();
  }
  counts[outcome] += 1;
  console.log(`${outcome} ${name} (${Date.now() - began} ms)`);
}
if (values.shots) {
  const target = values.binary ? await broker(values.binary) : await mock();
  await takeAll(browser, target, values.shots);
  target.stop();
}
await browser.close();
console.log(`${wanted.length} tests (${counts.passed} passed, ${counts.failed} failed)`);
process.exit(counts.failed > 0 ? 1 : 0);
