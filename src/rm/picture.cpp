// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/picture.hpp>

#include <algorithm>
#include <functional>
#include <string_view>

#include <fmt/format.h>

namespace upcie::rm {

namespace {

/// Calls `visit` with each object and its depth, parents first. Without recursion: a damaged trace may nest deeply.
void walk(const ObjectTree& tree, const std::function<void(const Object&, std::size_t, unsigned)>& visit) {
    struct Place {
        std::size_t object;
        unsigned depth;
    };
    std::vector<Place> todo;
    const auto push = [&](const std::vector<std::size_t>& objects, unsigned depth) {
        for (auto object = objects.rbegin(); object != objects.rend(); ++object) {
            todo.push_back({*object, depth});
        }
    };
    push(tree.roots(), 0);
    while (!todo.empty()) {
        const Place place = todo.back();
        todo.pop_back();
        visit(tree.objects()[place.object], place.object, place.depth);
        push(tree.objects()[place.object].children, place.depth + 1);
    }
}

std::string life_text(const Object& object) {
    const std::string born = object.assumed ? "before the trace" : fmt::format("{}", object.born);
    return object.died != 0 ? fmt::format("{} to {}", born, object.died) : fmt::format("{} on", born);
}

std::string class_text(const Object& object) {
    return class_name(object.class_id);
}

std::string export_text(const ObjectExport& made) {
    return made.dma_buf ? fmt::format("dma-buf fd {}, {}", made.fd, bytes_text(made.total))
                        : fmt::format("descriptor fd {}", made.fd);
}

std::string_view mapping_text(ObjectMapping::Kind kind) {
    switch (kind) {
    case ObjectMapping::Kind::cpu:
        return "mapped for the CPU";
    case ObjectMapping::Kind::external:
        return "mapped by UVM";
    case ObjectMapping::Kind::engine:
        break;
    }
    return "mapped for the GPU";
}

/// How deep a picture may go to the right before it stops doing so.
constexpr unsigned most_depth = 40;

std::string_view role_color(ClassRole role) {
    switch (role) {
    case ClassRole::client:
        return "#d9d9d9";
    case ClassRole::device:
    case ClassRole::subdevice:
        return "#b3cde3";
    case ClassRole::memory:
    case ClassRole::virtual_memory:
    case ClassRole::address_space:
        return "#ccebc5";
    case ClassRole::channel:
    case ClassRole::channel_group:
    case ClassRole::context_share:
    case ClassRole::usermode:
        return "#fed9a6";
    case ClassRole::compute:
    case ClassRole::copy:
    case ClassRole::graphics:
    case ClassRole::video:
        return "#fbb4ae";
    case ClassRole::event:
        return "#decbe4";
    default:
        return "#f2f2f2";
    }
}

std::string escape_xml(std::string_view text) {
    std::string escaped;
    for (const char letter : text) {
        switch (letter) {
        case '<':
            escaped += "&lt;";
            break;
        case '>':
            escaped += "&gt;";
            break;
        case '&':
            escaped += "&amp;";
            break;
        case '"':
            escaped += "&quot;";
            break;
        default:
            escaped += static_cast<unsigned char>(letter) < 0x20 ? '?' : letter;
        }
    }
    return escaped;
}

std::string escape_dot(std::string_view text) {
    std::string escaped;
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') {
            escaped += '\\';
        }
        escaped += letter;
    }
    return escaped;
}

std::string line_of(const Object& object) {
    std::string line = fmt::format("{}  0x{:x}  {}", object.label, object.handle, class_text(object));
    if (!object.facts.empty()) {
        line += "  " + object.facts;
    }
    return line;
}

} // namespace

std::string tree_text(const ObjectTree& tree) {
    std::string text;
    walk(tree, [&](const Object& object, std::size_t position, unsigned depth) {
        const std::string indent(std::size_t{2} * std::min(depth, most_depth), ' ');
        text += fmt::format("{}{}  [{}]\n", indent, line_of(object), life_text(object));
        for (const ObjectMapping& mapping : tree.mappings()) {
            if (mapping.object == position) {
                text += fmt::format("{}    {}: 0x{:x}, {}\n", indent, mapping_text(mapping.kind), mapping.address,
                                    bytes_text(mapping.length));
            }
        }
        for (const ObjectExport& made : tree.exports()) {
            for (const ObjectExport::Part& part : made.parts) {
                if (part.object == position) {
                    text += fmt::format("{}    exported as {}\n", indent, export_text(made));
                }
            }
        }
    });
    for (const ObjectExport& made : tree.exports()) {
        const bool homeless =
            std::ranges::none_of(made.parts, [](const ObjectExport::Part& part) { return part.object.has_value(); });
        if (homeless) {
            text += fmt::format("exported as {}, of an object that was not seen\n", export_text(made));
        }
    }
    return text;
}

std::string tree_dot(const ObjectTree& tree) {
    std::string text =
        "digraph rm {\n  rankdir=LR;\n  node [shape=box, style=filled, fontname=\"sans-serif\", fontsize=10];\n";
    walk(tree, [&](const Object& object, std::size_t position, unsigned) {
        text += fmt::format("  o{} [label=\"{}\\n{}\\n0x{:x}{}{}\", fillcolor=\"{}\"];\n", position,
                            escape_dot(object.label), escape_dot(class_text(object)), object.handle,
                            object.facts.empty() ? "" : "\\n", escape_dot(object.facts), role_color(object.role));
        if (object.parent_index) {
            text += fmt::format("  o{} -> o{};\n", *object.parent_index, position);
        }
    });
    for (std::size_t i = 0; i < tree.exports().size(); ++i) {
        const ObjectExport& made = tree.exports()[i];
        text += fmt::format("  e{} [shape=ellipse, label=\"{}\", fillcolor=\"#ffffcc\"];\n", i,
                            escape_dot(export_text(made)));
        for (const ObjectExport::Part& part : made.parts) {
            if (part.object) {
                text += fmt::format("  o{} -> e{} [style=dashed];\n", *part.object, i);
            }
        }
    }
    return text + "}\n";
}

std::string tree_svg(const ObjectTree& tree) {
    constexpr unsigned row_height = 24;
    constexpr unsigned indent = 24;
    constexpr unsigned width = 1100;
    std::string rows;
    std::vector<unsigned> row_of(tree.objects().size());
    unsigned row = 0;
    walk(tree, [&](const Object& object, std::size_t position, unsigned depth) {
        const unsigned x = 10 + indent * std::min(depth, most_depth);
        const unsigned y = 10 + row * row_height;
        row_of[position] = row++;
        if (object.parent_index) {
            const unsigned from = 10 + row_of[*object.parent_index] * row_height + row_height - 4;
            rows += fmt::format("<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#999\"/>\n", x - indent / 2, from,
                                y + 10, x);
        }
        rows +=
            fmt::format("<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"20\" rx=\"3\" fill=\"{}\" "
                        "stroke=\"#666\"/><text x=\"{}\" y=\"{}\">{}</text></g>\n",
                        escape_xml("sequence numbers " + life_text(object)), x, y, width - x - 10,
                        role_color(object.role), x + 6, y + 14, escape_xml(line_of(object)));
    });
    for (const ObjectExport& made : tree.exports()) {
        rows += fmt::format("<text x=\"16\" y=\"{}\">exported as {}</text>\n", 10 + row++ * row_height + 14,
                            escape_xml(export_text(made)));
    }
    return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
                       "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
                       "fill=\"white\"/>\n{2}</svg>\n",
                       width, 20 + row * row_height, rows);
}

} // namespace upcie::rm
