// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <upcie/rm/call.hpp>

#include "commands.hpp"
#include "timeline_lines.hpp"

namespace upcie::rm::tool {

namespace {

constexpr int schema_version = 1;

Json call_json(const Call& call, DriverVersion version, const ObjectTree& tree) {
    Json json;
    json["node"] = call.ioctl->node.path;
    json["request"] = hexadecimal(call.ioctl->request);
    json["name"] = call_name(call, version);
    switch (call.what.type) {
    case BlockKind::Type::escape:
        json["escape"] = hexadecimal(call.what.number);
        break;
    case BlockKind::Type::uvm:
        json["uvm"] = hexadecimal(call.what.number);
        break;
    default:
        break;
    }
    json["xfer"] = call.through_xfer;
    if (call.control) {
        json["control"] = hexadecimal(*call.control);
    }
    if (call.class_id) {
        json["class"] = hexadecimal(*call.class_id);
    }
    if (call.what.type == BlockKind::Type::escape && call.client != 0) {
        json["client"] = hexadecimal(call.client);
        json["object"] = hexadecimal(call.object);
        if (const Object* object = tree.find(call.client, call.object)) {
            json["object_label"] = object->label;
        }
    }
    json["parameter_bytes"] = call.parameter_bytes;
    json["succeeded"] = call.succeeded();
    json["outcome"] = outcome_text(call);
    if (call.status) {
        json["status"] = hexadecimal(*call.status);
    }
    return json;
}

const char* mapping_kind(ObjectMapping::Kind kind) {
    switch (kind) {
    case ObjectMapping::Kind::cpu:
        return "cpu";
    case ObjectMapping::Kind::external:
        return "uvm";
    case ObjectMapping::Kind::engine:
        break;
    }
    return "gpu";
}

} // namespace

Json objects_json(const ObjectTree& tree) {
    Json json;
    json["objects"] = Json::array();
    for (const Object& object : tree.objects()) {
        Json entry{{"client", hexadecimal(object.client)},
                   {"handle", hexadecimal(object.handle)},
                   {"parent", hexadecimal(object.parent)},
                   {"class", hexadecimal(object.class_id)},
                   {"class_name", class_name(object.class_id)},
                   {"role", role_name(object.role)},
                   {"label", object.label},
                   {"facts", object.facts},
                   {"bytes", object.bytes},
                   {"pid", object.pid},
                   {"born", object.born},
                   {"assumed", object.assumed}};
        entry["died"] = object.died != 0 ? Json(object.died) : Json(nullptr);
        entry["parent_index"] = object.parent_index ? Json(*object.parent_index) : Json(nullptr);
        json["objects"].push_back(std::move(entry));
    }
    json["mappings"] = Json::array();
    for (const ObjectMapping& mapping : tree.mappings()) {
        json["mappings"].push_back({{"kind", mapping_kind(mapping.kind)},
                                    {"object_index", mapping.object ? Json(*mapping.object) : Json(nullptr)},
                                    {"address", hexadecimal(mapping.address)},
                                    {"length", mapping.length},
                                    {"offset", mapping.offset},
                                    {"born", mapping.born},
                                    {"died", mapping.died != 0 ? Json(mapping.died) : Json(nullptr)}});
    }
    json["exports"] = Json::array();
    for (const ObjectExport& made : tree.exports()) {
        Json parts = Json::array();
        for (const ObjectExport::Part& part : made.parts) {
            parts.push_back({{"handle", hexadecimal(part.handle)},
                             {"object_index", part.object ? Json(*part.object) : Json(nullptr)},
                             {"offset", part.offset},
                             {"bytes", part.bytes}});
        }
        json["exports"].push_back({{"dma_buf", made.dma_buf},
                                   {"fd", made.fd},
                                   {"sequence", made.sequence},
                                   {"total", made.total},
                                   {"parts", std::move(parts)}});
    }
    return json;
}

Json decode_json(const Trace& trace) {
    const DriverVersion version = driver_version(trace);
    Json json;
    json["schema"] = "upcie_rm decode";
    json["version"] = schema_version;
    json.update(header_json(trace));
    json["records"] = Json::array();
    ObjectTree tree;
    for (const Record& record : trace.records) {
        const auto call = understand(record, version);
        Json entry{{"sequence", record.stamp.sequence}, {"type", type_name(record)},
                   {"pid", record.stamp.pid},           {"tid", record.stamp.tid},
                   {"time_in", record.stamp.time_in},   {"time_out", record.stamp.time_out}};
        if (call) {
            // With the name of what it makes, or of what it frees.
            const bool makes = call->class_id.has_value();
            if (makes) {
                tree.apply(record, call);
            }
            entry.update(call_json(*call, version, tree));
            if (!makes) {
                tree.apply(record, call);
            }
        } else {
            entry["text"] = record_text(record);
            tree.apply(record, call);
        }
        json["records"].push_back(std::move(entry));
    }
    json.update(objects_json(tree));
    return json;
}

} // namespace upcie::rm::tool
