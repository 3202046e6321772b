// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <upcie/rm/objects.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// The object tree as text, indented, with handles, facts and life (sequence numbers).
[[nodiscard]] std::string tree_text(const ObjectTree& tree);
/// The object tree as a Graphviz graph: `dot -Tsvg`.
[[nodiscard]] std::string tree_dot(const ObjectTree& tree);
/// The object tree as an SVG picture, drawn without help.
[[nodiscard]] std::string tree_svg(const ObjectTree& tree);
/// A page for a browser, with nothing to load besides: the calls of each thread over time, to zoom and to search.
[[nodiscard]] std::string timeline_html(const Trace& trace, std::string_view title);

} // namespace upcie::rm
