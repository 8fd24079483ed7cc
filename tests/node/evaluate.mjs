// Lines of {text, contexts, status} in; lines of {value} or {error} out. GitHub's own evaluator.
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const own = `${process.argv[2]}/node_modules/@actions/expressions/dist/index.js`;
const { Lexer, Parser, Evaluator, data } = await import(pathToFileURL(own));

const answers = (status) =>
  ["success", "failure", "cancelled", "always"].map((name) => ({
    name,
    minArgs: 0,
    maxArgs: 0,
    call: () => new data.BooleanData(name === "always" || status === name),
  }));

const evaluate = ({ text, contexts, status }) => {
  const functions = answers(status);
  const parser = new Parser(new Lexer(text).lex().tokens, Object.keys(contexts), functions);
  const known = JSON.parse(JSON.stringify(contexts), data.reviver);
  const named = new Map(functions.map((one) => [one.name, one]));
  const value = new Evaluator(parser.parse(), known, named).evaluate();
  return JSON.parse(JSON.stringify(value, data.replacer));
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  try {
    console.log(JSON.stringify({ value: evaluate(JSON.parse(line)) }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
