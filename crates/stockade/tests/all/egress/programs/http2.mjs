// A server that speaks HTTP/2 and nothing else, and ends its answers with trailers. http2.mjs DIRECTORY TOKEN; prints its port.
import fs from "node:fs";
import http2 from "node:http2";

const [directory, token] = process.argv.slice(2);
const read = (name) => fs.readFileSync(`${directory}/${name}`);
const server = http2.createSecureServer({ cert: read("server.pem"), key: read("server.key") });
server.on("stream", (stream, headers) => {
  const parts = [];
  stream.on("error", () => {});
  stream.on("data", (part) => parts.push(part));
  stream.on("end", () => {
    const knows = headers.authorization === `Bearer ${token}`;
    stream.on("wantTrailers", () => stream.sendTrailers({ "x-sum": `of ${token}` }));
    stream.respond({ ":status": 200 }, { waitForTrailers: true });
    stream.end(`${headers[":method"]} ${headers[":path"]} ${Buffer.concat(parts).length} ${knows}\n`);
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
