// SPDX-License-Identifier: BSD-3-Clause
#include <rm/trace_bytes.hpp>

namespace upcie::rm {

namespace {

template <class... Functions>
struct Overloaded : Functions... {
    using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

void visit_block(Block& block, TraceBytes kind, const std::function<void(std::vector<std::byte>&, TraceBytes)>& visit) {
    visit(block.before.bytes, kind);
    visit(block.after.bytes, kind);
}

/// A result that is an address: of mmap and mremap.
void visit_outcome(Outcome& outcome, const std::function<void(std::uint64_t&)>& visit) {
    if (outcome.succeeded()) {
        auto address = static_cast<std::uint64_t>(outcome.value);
        visit(address);
        outcome.value = static_cast<std::int64_t>(address);
    }
}

} // namespace

void for_each_bytes(Record& record, const std::function<void(std::vector<std::byte>&, TraceBytes)>& visit) {
    std::visit(Overloaded{[&](IoctlRecord& ioctl) {
                              for (Block& block : ioctl.blocks) {
                                  visit_block(block, TraceBytes::block, visit);
                              }
                          },
                          [&](ReadRecord& read) { visit_block(read.content, TraceBytes::file, visit); },
                          [&](MemoryRecord& memory) { visit(memory.bytes.bytes, TraceBytes::memory); }, [](auto&) {}},
               record.body);
}

void for_each_text(TraceHeader& header, const std::function<void(std::string&)>& visit) {
    visit(header.kernel);
    for (std::string& text : header.command) {
        visit(text);
    }
    for (std::string& text : header.gpus) {
        visit(text);
    }
}

void for_each_text(Record& record, const std::function<void(std::string&)>& visit) {
    std::visit(Overloaded{[&](OpenRecord& opened) {
                              visit(opened.path);
                              visit(opened.resolved);
                          },
                          [&](StatRecord& examined) {
                              visit(examined.path);
                              visit(examined.target);
                          },
                          [&](ReadRecord& read) { visit(read.path); },
                          [&](ExecRecord& started) {
                              visit(started.program);
                              for (std::string& text : started.arguments) {
                                  visit(text);
                              }
                          },
                          [&](LibraryRecord& library) { visit(library.path); },
                          [&](NoteRecord& note) { visit(note.text); },
                          [&](UnknownRecord& unknown) { visit(unknown.text); }, [](auto&) {}},
               record.body);
}

void for_each_address(Record& record, const std::function<void(std::uint64_t&)>& visit) {
    std::visit(Overloaded{[&](IoctlRecord& ioctl) {
                              visit(ioctl.argument);
                              for (Block& block : ioctl.blocks) {
                                  visit(block.address);
                              }
                          },
                          [&](ReadRecord& read) { visit(read.content.address); },
                          [&](MapRecord& map) {
                              visit(map.address);
                              visit(map.offset);
                              visit_outcome(map.outcome, visit);
                          },
                          [&](UnmapRecord& unmap) {
                              visit(unmap.address);
                              visit(unmap.new_address);
                              if (unmap.moved) {
                                  visit_outcome(unmap.outcome, visit);
                              }
                          },
                          [&](MemoryRecord& memory) {
                              visit(memory.mapping);
                              visit(memory.address);
                          },
                          [](auto&) {}},
               record.body);
}

} // namespace upcie::rm
