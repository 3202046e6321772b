// SPDX-License-Identifier: BSD-3-Clause
#include "report_shape.hpp"

#include <cerrno>
#include <initializer_list>

#include "machine_report.hpp"

namespace upcie::cli {

namespace {

enum class Type : std::uint8_t { text, truth, integer, list, object, anything };
enum class Presence : std::uint8_t {
    required,
    nullable, ///< required, and may be null
    optional, ///< may be null or not be there
};

struct Member {
    const char* name;
    Type type;
    Presence presence;
};

bool is_of(const Json& value, Type type) {
    switch (type) {
    case Type::text:
        return value.is_string();
    case Type::truth:
        return value.is_boolean();
    case Type::integer:
        return value.is_number_integer();
    case Type::list:
        return value.is_array();
    case Type::object:
        return value.is_object();
    case Type::anything:
        break;
    }
    return true;
}

const char* type_words(Type type) {
    switch (type) {
    case Type::text:
        return "text";
    case Type::truth:
        return "true or false";
    case Type::integer:
        return "a whole number";
    case Type::list:
        return "a list";
    case Type::object:
        return "an object";
    case Type::anything:
        break;
    }
    return "there";
}

std::string value_words(const Json& value) {
    return value.is_null()           ? "null"
           : value.is_number_float() ? "a number with a fraction"
           : value.is_number()       ? type_words(Type::integer)
           : value.is_string()       ? type_words(Type::text)
           : value.is_boolean()      ? type_words(Type::truth)
           : value.is_array()        ? type_words(Type::list)
                                     : type_words(Type::object);
}

class Shape {
  public:
    explicit Shape(const std::string& file) : file_{file} {}

    Result<void> machine_report(const Json& document) const;
    Result<void> probe_report(const Json& report, const std::string& path) const;

  private:
    using Check = Result<void> (Shape::*)(const Json&, const std::string& path) const;

    [[nodiscard]] tl::unexpected<Error> wrong(const std::string& path, const std::string& what) const {
        return fail(EINVAL, "read a report", file_,
                    fmt::format("{} {}: docs/probes.md has the schema. Make the report anew.", path, what));
    }
    Result<void> type(const Json& value, Type wanted, const std::string& path) const {
        return is_of(value, wanted)
                   ? Result<void>{}
                   : wrong(path, fmt::format("is {} and has to be {}", value_words(value), type_words(wanted)));
    }
    Result<void> members(const Json& object, const std::string& path, std::initializer_list<Member> known) const;
    /// Each element of a list, or member of an object, of which there may be none.
    Result<void> each(const Json& parent, const std::string& path, const char* name, Check check) const;
    Result<void> version(const Json& document, const std::string& path, const char* name, int known,
                         const std::string& whose) const;

    Result<void> text(const Json& value, const std::string& path) const { return type(value, Type::text, path); }
    Result<void> object(const Json& value, const std::string& path) const { return type(value, Type::object, path); }
    Result<void> entry(const Json& value, const std::string& path) const;
    Result<void> observation(const Json& value, const std::string& path) const;
    Result<void> control(const Json& value, const std::string& path) const;
    Result<void> answer(const Json& value, const std::string& path) const;

    const std::string& file_;
};

std::string below(const std::string& path, const std::string& member) {
    return path.empty() ? member : path + "." + member;
}

Result<void> Shape::members(const Json& object, const std::string& path, std::initializer_list<Member> known) const {
    if (auto done = type(object, Type::object, path.empty() ? "the document" : path); !done) {
        return done;
    }
    for (const Member& one : known) {
        const std::string where = below(path, one.name);
        const auto found = object.find(one.name);
        if (found == object.end()) {
            if (one.presence != Presence::optional) {
                return wrong(where, fmt::format("is missing and has to be {}", type_words(one.type)));
            }
            continue;
        }
        if (found->is_null() && one.presence != Presence::required) {
            continue;
        }
        if (auto done = type(*found, one.type, where); !done) {
            return done;
        }
    }
    return {};
}

Result<void> Shape::each(const Json& parent, const std::string& path, const char* name, Check check) const {
    const Json& parts = member_of(parent, name);
    for (const auto& [key, part] : parts.items()) { // of a list the key is the index
        const std::string where =
            parts.is_array() ? fmt::format("{}[{}]", below(path, name), key) : below(below(path, name), key);
        if (auto done = (this->*check)(part, where); !done) {
            return done;
        }
    }
    return {};
}

Result<void> Shape::version(const Json& document, const std::string& path, const char* name, int known,
                            const std::string& whose) const {
    const std::string where = below(path, "schema");
    auto done = members(document, path, {{"schema", Type::object, Presence::required}});
    const Json& schema = member_of(document, "schema");
    if (done) {
        done = members(schema, where,
                       {{"name", Type::text, Presence::required}, {"version", Type::integer, Presence::required}});
    }
    if (!done) {
        return done;
    }
    if (text_of(schema, "name") != name) {
        return wrong(where + ".name", fmt::format("is another than {}", name));
    }
    const Json& number = member_of(schema, "version");
    if (number != known) {
        return fail(
            ENOTSUP, "read a report", file_,
            fmt::format("{} has version {} of its schema, and this program knows version {}: use the upcie that "
                        "made it.",
                        whose, plain_text(number), known));
    }
    return {};
}

Result<void> Shape::machine_report(const Json& document) const {
    auto done = version(document, {}, "upcie-report", machine_report_version, "It");
    if (done) {
        done = members(document, {},
                       {{"tool_version", Type::text, Presence::optional},
                        {"created", Type::text, Presence::optional},
                        {"machine", Type::text, Presence::required},
                        {"measured", Type::text, Presence::required},
                        {"source", Type::text, Presence::optional},
                        {"host", Type::object, Presence::required},
                        {"only", Type::list, Presence::optional},
                        {"probes", Type::list, Presence::required}});
    }
    if (done) {
        done = members(member_of(document, "host"), "host",
                       {{"name", Type::text, Presence::optional},
                        {"kernel", Type::text, Presence::optional},
                        {"iommu", Type::text, Presence::optional},
                        {"cpu_vendor", Type::text, Presence::optional},
                        {"cpu", Type::text, Presence::optional},
                        {"distribution", Type::text, Presence::optional},
                        {"uid", Type::integer, Presence::optional}});
    }
    if (done) {
        done = each(document, {}, "only", &Shape::text);
    }
    if (const std::string measured = text_of(document, "measured"); done && measured != "here") {
        done = measured == "elsewhere" ? done : wrong("measured", "is neither \"here\" nor \"elsewhere\"");
    }
    return done ? each(document, {}, "probes", &Shape::entry) : done;
}

Result<void> Shape::entry(const Json& value, const std::string& path) const {
    auto done = members(value, path,
                        {{"probe", Type::text, Presence::required},
                         {"variant", Type::text, Presence::optional},
                         {"device", Type::text, Presence::optional},
                         {"arguments", Type::list, Presence::optional},
                         {"outcome", Type::text, Presence::required},
                         {"reason", Type::text, Presence::optional},
                         {"remedy", Type::text, Presence::optional},
                         {"exit_status", Type::integer, Presence::optional},
                         {"signal", Type::text, Presence::optional},
                         {"errors", Type::text, Presence::optional},
                         {"output", Type::text, Presence::optional},
                         {"report", Type::object, Presence::optional}});
    if (done) {
        done = each(value, path, "arguments", &Shape::text);
    }
    if (!done) {
        return done;
    }
    const Json& report = member_of(value, "report");
    if (!report.is_null()) {
        return probe_report(report, below(path, "report"));
    }
    return text_of(value, "outcome") == probe_outcome::answered
               ? wrong(below(path, "report"), "is not there, though the probe answered")
               : done;
}

Result<void> Shape::probe_report(const Json& report, const std::string& path) const {
    const std::string name = text_of(report, "probe");
    auto done = version(report, path, "upcie-probe", 1,
                        path.empty() ? "It" : fmt::format("What {} said ({})", name.empty() ? "a probe" : name, path));
    if (done) {
        done = members(
            report, path,
            {{"probe", Type::text, Presence::required},
             {"tool_version", Type::text, Presence::optional},
             {"kernel", Type::text, Presence::optional},
             {"iommu_mode", Type::text, Presence::optional},
             {"device", Type::object, Presence::optional},
             {"drivers", Type::object, Presence::optional},
             {"question", Type::text, Presence::optional},
             {"asked", Type::truth, Presence::required},
             {"reason", Type::text, Presence::optional},
             {"remedy", Type::text, Presence::optional},
             {"processes", Type::object, Presence::optional},
             {"controls", Type::list, Presence::required},
             {"observations", Type::list, Presence::required},
             {"verdict", Type::object, member_of(report, "asked") == true ? Presence::required : Presence::nullable}});
    }
    if (done) {
        done = each(report, path, "processes", &Shape::object);
    }
    if (done) {
        done = each(report, path, "controls", &Shape::control);
    }
    if (done) {
        done = each(report, path, "observations", &Shape::observation);
    }
    const Json& verdict = member_of(report, "verdict");
    if (!done || verdict.is_null()) {
        return done;
    }
    const std::string where = below(path, "verdict");
    done = members(verdict, where,
                   {{"sentence", Type::text, Presence::optional},
                    {"conclusive", Type::truth, Presence::required},
                    {"answers", Type::list, Presence::required}});
    return done ? each(verdict, where, "answers", &Shape::answer) : done;
}

Result<void> Shape::observation(const Json& value, const std::string& path) const {
    return members(value, path,
                   {{"name", Type::text, Presence::required},
                    {"value", Type::anything, Presence::nullable},
                    {"unit", Type::text, Presence::required},
                    {"errno", Type::integer, Presence::optional},
                    {"process", Type::text, Presence::optional},
                    {"note", Type::text, Presence::optional}});
}

Result<void> Shape::control(const Json& value, const std::string& path) const {
    auto done = observation(value, path);
    return done ? members(value, path,
                          {{"held", Type::truth, Presence::required}, {"topic", Type::text, Presence::required}})
                : done;
}

Result<void> Shape::answer(const Json& value, const std::string& path) const {
    auto done = members(value, path,
                        {{"topic", Type::text, Presence::required},
                         {"answer", Type::text, Presence::required},
                         {"conclusive", Type::truth, Presence::required},
                         {"failed_controls", Type::list, Presence::optional},
                         {"sentence", Type::text, Presence::optional}});
    return done ? each(value, path, "failed_controls", &Shape::text) : done;
}

} // namespace

Result<void> check_machine_report(const Json& document, const std::string& file) {
    return Shape{file}.machine_report(document);
}

Result<void> check_probe_report(const Json& document, const std::string& file) {
    return Shape{file}.probe_report(document, {});
}

} // namespace upcie::cli
