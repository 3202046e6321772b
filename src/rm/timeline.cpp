// SPDX-License-Identifier: BSD-3-Clause
// One page with its data inside. The script draws a lane for each thread on a canvas; wheel and drag move through time.
#include <upcie/rm/picture.hpp>

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include <upcie/rm/contract.hpp>

namespace upcie::rm {

namespace {

constexpr std::string_view page_head = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>@TITLE@</title><style>
body{font:13px sans-serif;margin:12px}canvas{border:1px solid #999;width:100%;cursor:grab}
#bar{margin:6px 0}input{width:28em}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:1px 8px;
border-bottom:1px solid #eee;white-space:nowrap}td:nth-child(6){white-space:normal}tr.bad td{color:#b00}
tr.now td{background:#ffc}.key span{display:inline-block;width:10px;height:10px;margin:0 4px 0 12px}
</style></head><body><h3>@TITLE@</h3><canvas id="c"></canvas>
<div id="bar"><input id="q" placeholder="find: a name, number, handle or status"> <span id="n"></span>
<span class="key" id="key"></span></div>
<table><thead><tr><th>#</th><th>ms</th><th>us</th><th>thread</th><th>node</th><th>call</th><th>outcome</th></tr></thead>
<tbody id="t"></tbody></table><script>
)html";

constexpr std::string_view page_script = R"html(
const kinds=["control device","objects and handles","device and engine topology","memory","channels",
"events and interrupts","values of consumed replies","push-buffer execution"];
const colors=["#777","#4e79a7","#59a14f","#76b7b2","#f28e2b","#b07aa1","#edc948","#e15759"];
const c=document.getElementById("c"),g=c.getContext("2d"),q=document.getElementById("q"),t=document.getElementById("t");
const lanes=[...new Set(D.map(r=>r[1]))],laneOf=new Map(lanes.map((x,i)=>[x,i]));
const end=Math.max(1,...D.map(r=>r[2]+r[3]));let from=0,to=end,found=D,chosen=null;
document.getElementById("key").innerHTML=kinds.map((k,i)=>`<span style="background:${colors[i]}"></span>${k}`).join("");
function draw(){const w=c.width=c.clientWidth,h=c.height=lanes.length*26+24;c.style.height=h+"px";
g.clearRect(0,0,w,h);g.font="11px sans-serif";const s=w/(to-from);
for(const r of found){const x=(r[2]-from)*s,y=laneOf.get(r[1])*26+4,d=Math.max(1,r[3]*s);if(x+d<0||x>w)continue;
g.fillStyle=r[7]?"#c00":colors[r[6]-1]||"#000";g.fillRect(x,y,d,18);
if(r===chosen){g.strokeStyle="#000";g.strokeRect(x-1,y-1,d+2,20)}}
g.fillStyle="#000";lanes.forEach((l,i)=>g.fillText("thread "+l,4,i*26+17));
for(let i=0;i<=8;i++)g.fillText(((from+(to-from)*i/8)/1000).toFixed(2)+" ms",i*w/8,h-6)}
function rows(){t.textContent="";const part=found.filter(r=>r[2]+r[3]>=from&&r[2]<=to).slice(0,2000);
for(const r of part){const tr=document.createElement("tr");if(r[7])tr.className="bad";if(r===chosen)tr.classList.add("now");
for(const v of [r[0],(r[2]/1000).toFixed(3),r[3].toFixed(1),r[1],r[4],r[5],r[8]]){const td=document.createElement("td");
td.textContent=v;tr.append(td)}tr.onclick=()=>{chosen=r;draw()};t.append(tr)}
document.getElementById("n").textContent=found.length+" of "+D.length+" calls"+(part.length===2000?", the first 2000 in view":"")}
q.oninput=()=>{const s=q.value.toLowerCase();found=s?D.filter(r=>(r[0]+" "+r[4]+" "+r[5]+" "+r[8]).toLowerCase().includes(s)):D;
draw();rows()};
c.onwheel=e=>{e.preventDefault();const k=e.deltaY>0?1.25:0.8,x=from+(to-from)*e.offsetX/c.clientWidth;
from=Math.max(0,x-(x-from)*k);to=Math.min(end,x+(to-x)*k);if(to-from<1)to=from+1;draw();rows()};
let at=null;c.onmousedown=e=>{at=e.offsetX};window.onmouseup=()=>{at=null};
c.onmousemove=e=>{if(at===null){const x=from+(to-from)*e.offsetX/c.clientWidth,l=lanes[Math.floor(e.offsetY/26)];
const slack=(to-from)/c.clientWidth*2,r=found.find(r=>r[1]===l&&r[2]-slack<=x&&r[2]+r[3]+slack>=x);c.title=r?`${r[0]} ${r[5]}: ${r[8]}`:"";return}
const d=(at-e.offsetX)*(to-from)/c.clientWidth,w=to-from;from=Math.max(0,Math.min(end-w,from+d));to=from+w;at=e.offsetX;draw();rows()};
window.onresize=draw;draw();rows();
</script></body></html>
)html";

/// A JSON string that may also stand inside a script element.
std::string json_text(std::string_view text) {
    std::string json = "\"";
    for (const char letter : text) {
        const auto code = static_cast<unsigned char>(letter);
        if (code < 0x20 || code > 0x7e || letter == '"' || letter == '\\' || letter == '<' || letter == '>' ||
            letter == '&') {
            json += fmt::format("\\u{:04x}", code);
        } else {
            json += letter;
        }
    }
    return json + "\"";
}

std::string html_text(std::string_view text) {
    std::string html;
    for (const char letter : text) {
        html += letter == '<' ? "&lt;" : letter == '&' ? "&amp;" : std::string{letter};
    }
    return html;
}

} // namespace

std::string timeline_html(const Trace& trace, std::string_view title) {
    const DriverVersion version = driver_version(trace);
    std::uint64_t begin = ~std::uint64_t{0};
    for (const Record& record : trace.records) {
        if (std::holds_alternative<IoctlRecord>(record.body)) {
            begin = std::min(begin, record.stamp.time_in);
        }
    }
    std::string data = "const D=[\n";
    ObjectTree tree;
    for (const Record& record : trace.records) {
        const auto call = understand(record, version);
        if (call) {
            std::string name = call_name(*call, version);
            if (const Object* object = tree.find(call->client, call->object)) {
                name += " on " + object->label;
            }
            const std::uint64_t since = record.stamp.time_in - begin;
            data += fmt::format("[{},{},{:.3f},{:.3f},{},{},{},{},{}],\n", record.stamp.sequence, record.stamp.tid,
                                static_cast<double>(since) / 1000, static_cast<double>(call->nanoseconds()) / 1000,
                                json_text(call->ioctl->node.path), json_text(name),
                                static_cast<unsigned>(point_of(ask_of(*call))), call->succeeded() ? 0 : 1,
                                json_text(outcome_text(*call)));
        }
        tree.apply(record, call);
    }
    data += "];";
    std::string page{page_head};
    constexpr std::string_view mark = "@TITLE@";
    const std::string shown = html_text(title);
    for (std::size_t at = page.find(mark); at != std::string::npos; at = page.find(mark, at + shown.size())) {
        page.replace(at, mark.size(), shown);
    }
    return page + data + std::string{page_script};
}

} // namespace upcie::rm
