// Safetensors, npy, run logs and atomic writes, above all how they refuse bad input.
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>

#include "src/files.hpp"
#include "src/json_lines.hpp"
#include "src/json_text.hpp"
#include "src/npy.hpp"
#include "src/report.hpp"
#include "src/safetensors.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

using namespace quads;

namespace {

Safetensors example() {
    Safetensors content;
    content.metadata = {{"config", "{\"a\": \"\\\\ \\n\"}"}, {"step", "7"}};
    content.tensors["w"] = Tensor::of<float>({1.0f, -0.0f, std::numeric_limits<float>::quiet_NaN(), 4.0f}, {2, 2});
    content.tensors["a bytes"] = Tensor::of<std::uint8_t>({1, 2, 255}, {3});
    content.tensors["moments"] = Tensor::of<std::int64_t>({-1}, {});
    content.tensors["index"] = Tensor::of<std::int32_t>({-7, 9}, {1, 2});
    content.tensors["empty"] = Tensor::of<float>({}, {0, 5});
    return content;
}

// A safetensors file with the given header and data.
std::string raw(const std::string& header, const std::string& data) {
    std::string length(8, '\0');
    for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 255);
    return length + header + data;
}

void put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Makes every write of this process beyond `bytes` of a file fail, as on a full disk.
class FullDisk {
public:
    explicit FullDisk(rlim_t bytes) {
        handler_ = std::signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &old_);
        const rlimit limit{bytes, old_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FullDisk() {
        setrlimit(RLIMIT_FSIZE, &old_);
        std::signal(SIGXFSZ, handler_);
    }

private:
    rlimit old_;
    void (*handler_)(int);
};

}  // namespace

TEST_CASE("safetensors survive a round trip, and the same content gives the same bytes", "[files]") {
    TemporaryFolder folder;
    const std::string path = folder.file("a.safetensors");
    write_safetensors(path, example());
    const std::string bytes = read_file(path);
    const Safetensors back = read_safetensors(path);
    CHECK(back.metadata == example().metadata);
    REQUIRE(back.tensors.size() == example().tensors.size());
    for (const auto& [name, tensor] : example().tensors) {
        INFO(name);
        CHECK(back.tensors.at(name).type == tensor.type);
        CHECK(back.tensors.at(name).shape == tensor.shape);
        CHECK(back.tensors.at(name).bytes == tensor.bytes);
    }
    write_safetensors(path, back);
    CHECK(read_file(path) == bytes);
    CHECK(bytes.find('{') == 8);
    CHECK((static_cast<unsigned char>(bytes[0])) % 8 == 0);  // the data is aligned
}

TEST_CASE("a tensor of another name, shape or type is refused", "[files]") {
    TemporaryFolder folder;
    write_safetensors(folder.file("a"), example());
    const Safetensors file = read_safetensors(folder.file("a"));
    CHECK(file.values<std::int32_t>("index", {1, 2}) == std::vector<std::int32_t>{-7, 9});
    CHECK(refusal([&] { file.values<float>("moment", {}); }).find("'moments'") != std::string::npos);
    CHECK(refusal([&] { file.values<float>("w", {4}); }).find("(2, 2), expected (4)") != std::string::npos);
    CHECK(refusal([&] { file.values<float>("index", {1, 2}); }).find("int32, expected float32") != std::string::npos);
    CHECK(!refusal([&] { file.text("nothing"); }).empty());
}

TEST_CASE("every truncation of a safetensors file is refused", "[files]") {
    TemporaryFolder folder;
    const std::string path = folder.file("a.safetensors");
    write_safetensors(path, example());
    const std::string bytes = read_file(path);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        put(path, bytes.substr(0, size));
        INFO(size << " of " << bytes.size() << " bytes");
        CHECK(!refusal([&] { read_safetensors(path); }).empty());
    }
    put(path, bytes + "x");
    CHECK(!refusal([&] { read_safetensors(path); }).empty());
}

TEST_CASE("malformed and foreign safetensors headers are refused", "[files]") {
    TemporaryFolder folder;
    const std::string path = folder.file("a.safetensors");
    const std::string good = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    put(path, raw(good, "abcd"));
    CHECK(read_safetensors(path).tensors.size() == 1);
    for (
        const char* header : {
            "",
            "[]",
            "{",
            "{}",
            R"({"w":3})",
            R"({"w":{}})",
            R"({"__metadata__":{"a":1}})",
            R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
            R"({"w":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})",
            R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
            R"({"w":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})",
            R"({"w":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})",
            R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
            R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0]}})",
            R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})",
            R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
            R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
            R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
            R"({"w":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})",
            R"({"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
        }) {
        INFO(header);
        put(path, raw(header, "abcd"));
        CHECK(!refusal([&] { read_safetensors(path); }).empty());
    }
    put(path, std::string(8, '\xff') + good);  // a header longer than any file
    CHECK(!refusal([&] { read_safetensors(path); }).empty());
    put(path, "PK\x03\x04 a zip archive, as other programs save their checkpoints");
    CHECK(!refusal([&] { read_safetensors(path); }).empty());
    CHECK(refusal([&] { read_safetensors(folder.file("no")); }).find("No such file") != std::string::npos);
    CHECK(refusal([&] { read_safetensors(folder.path()); }).find("folder") != std::string::npos);
}

TEST_CASE("a write that fails leaves the old file and no other", "[files]") {
    TemporaryFolder folder;
    const std::string path = folder.file("a.safetensors");
    write_safetensors(path, example());
    const std::string bytes = read_file(path);
    Safetensors large = example();
    large.tensors["large"] = Tensor::of(std::vector<float>(1 << 16), {1 << 16});
    std::string sentence;
    {
        const FullDisk full(4096);
        sentence = refusal([&] { write_safetensors(path, large); });
    }
    CHECK(!sentence.empty());
    CHECK(read_file(path) == bytes);
    CHECK(!std::filesystem::exists(path + ".tmp"));
    CHECK(!refusal([&] { write_file_atomically(folder.file("no/such/folder"), "x"); }).empty());
    CHECK(!refusal([&] { write_file_atomically(folder.path(), "x"); }).empty());
}

TEST_CASE("npy arrays survive a round trip", "[files]") {
    TemporaryFolder folder;
    const std::string path = folder.file("a.npy");
    for (const Tensor& tensor : {Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3}), Tensor::of<float>({1, 2}, {2}),
                                 Tensor::of<std::uint8_t>({7, 255}, {2, 1}), Tensor::of<std::int32_t>({-1}, {1}),
                                 Tensor::of<float>({}, {0, 3})}) {
        write_npy(path, tensor);
        const Tensor back = read_npy(path);
        CHECK(back.type == tensor.type);
        CHECK(back.shape == tensor.shape);
        CHECK(back.bytes == tensor.bytes);
        CHECK((read_file(path).size() - tensor.bytes.size()) % 64 == 0);
    }
}

TEST_CASE("npy files as NumPy writes them", "[files]") {
    TemporaryFolder folder;
    const std::string path = folder.file("a.npy");
    const std::string data(8, '\x01');
    const auto file = [&](const std::string& header, char major) {
        std::string bytes = std::string("\x93NUMPY") + major + '\0';
        bytes += static_cast<char>(header.size());
        bytes += major == 1 ? std::string(1, '\0') : std::string(3, '\0');
        put(path, bytes + header + data);
    };
    for (const char major : {1, 2, 3}) {
        file("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }          \n", major);
        CHECK(read_npy(path).shape == std::vector<std::int64_t>{1, 2});
        file("{\"descr\": '<f4'}\n", major);
        CHECK(!refusal([&] { read_npy(path); }).empty());
    }
    file("{'descr': '|u1', 'fortran_order': False, 'shape': (8,), }\n", 1);
    CHECK(read_npy(path).values<std::uint8_t>("a") == std::vector<std::uint8_t>(8, 1));
    for (const char* header : {
             "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n",
             "{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }\n",
             "{'descr': '<f2', 'fortran_order': False, 'shape': (4,), }\n",
             "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }\n",
             "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n",
             "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 2), }\n",
             "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n",
             "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }\n",
             "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n",
             "{'descr': '<f4', 'fortran_order': False, 'shape': 2 }\n",
             "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,), }\n",
             "{'descr': '<f4', 'fortran_order': False}\n",
             "{'descr':",
             "",
         }) {
        INFO(header);
        file(header, 1);
        CHECK(!refusal([&] { read_npy(path); }).empty());
    }
    file("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }\n", 1);
    CHECK(refusal([&] { read_npy(path); }).find("Fortran") != std::string::npos);
    put(path, "not an array");
    CHECK(refusal([&] { read_npy(path); }).find("numpy.save") != std::string::npos);
    write_npy(path, Tensor::of<float>({1, 2, 3}, {3}));
    const std::string bytes = read_file(path);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        put(path, bytes.substr(0, size));
        CHECK(!refusal([&] { read_npy(path); }).empty());
    }
}

TEST_CASE("a run's log is read back, without a torn last line", "[files]") {
    TemporaryFolder folder;
    const std::string path = folder.file("new/folder/run.jsonl");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    {
        RunLogWriter log = RunLogWriter::create(path, "{\"steps\":3}");
        log.append({{"step", 0}, {"reward", 0.1}});
        log.append({{"step", 1}, {"reward", nan}, {"heldout_pass1", 1.0 / 3}});
    }
    const std::string text = read_file(path);
    CHECK(text ==
          "{\"steps\":3}\n{\"step\":0,\"reward\":0.1}\n"
          "{\"step\":1,\"reward\":null,\"heldout_pass1\":0.3333333333333333}\n");
    for (const std::string& torn : {std::string(), std::string("{\"step\":2,\"rew"), std::string("{\"step\":2}"),
                                    std::string("\0\0\0\n", 4), std::string("{\"step\":\n")}) {
        put(path, text + torn);
        const RunLog log = read_run_log(path);
        REQUIRE(log.steps.size() == 2);
        CHECK(log.config == "{\"steps\":3}");
        CHECK(log.column("reward")[0] == 0.1);
        CHECK(std::isnan(log.column("reward")[1]));
        CHECK(std::isnan(log.column("heldout_pass1")[0]));
    }
    put(path, "{\"steps\":3}\nnonsense\n{\"step\":1}\n");
    CHECK(refusal([&] { read_run_log(path); }).find("line 2") != std::string::npos);
    for (const char* bad : {"", "{\"steps\":3}", "[]\n", "word\n"}) {
        put(path, bad);
        CHECK(!refusal([&] { read_run_log(path); }).empty());
    }
    CHECK(!refusal([&] { read_run_log(folder.file("missing")); }).empty());
}

TEST_CASE("a log continues after a given step, byte for byte", "[files]") {
    TemporaryFolder folder;
    const std::string path = folder.file("run.jsonl");
    const std::string kept = "{\"steps\": 3}\n{\"step\":  0}\n";  // blanks stay: lines are not written anew
    put(path, kept + "{\"step\":1}\n{\"st");
    {
        RunLogWriter log = RunLogWriter::resume(path, 1);
        CHECK(read_file(path) == kept);
        log.append({{"step", 1}});
    }
    CHECK(read_file(path) == kept + "{\"step\":1}\n");
    CHECK(refusal([&] { RunLogWriter::resume(path, 3); }).find("2 steps") != std::string::npos);
    CHECK(read_file(path) == kept + "{\"step\":1}\n");
    RunLogWriter log = RunLogWriter::resume(path, 2);
    std::string sentence;
    {
        const FullDisk full(kept.size() + 20);
        sentence = refusal([&] { log.append({{"step", 2}, {"reward", 0.25}}); });
    }
    CHECK(!sentence.empty());
    CHECK(read_run_log(path).steps.size() == 2);
}

TEST_CASE("numbers in JSON are the shortest text that reads back to the same bits", "[files]") {
    CHECK(json_number(0.3f) == "0.3");
    CHECK(json_number(0.1) == "0.1");
    CHECK(json_number(-0.0) == "-0");
    CHECK(json_number(5120.0) == "5120");
    CHECK(json_number(std::numeric_limits<double>::infinity()) == "null");
    CHECK(json_string("a\"\\\n\x01") == "\"a\\\"\\\\\\u000a\\u0001\"");
}

TEST_CASE("a report holds every mode and needs nothing from the network", "[files]") {
    Report report{"A & B", "make <this>", {{"mode", "end"}, {{"bf16", "0.99"}, {"naive", "0.3"}}}, {}};
    for (const char* mode : {"bf16", "naive"}) {
        RunLog log{"{}", {}};
        for (int step = 0; step < 30; ++step)
            log.steps.push_back({{"reward", 0.5}, {"gap_mean", 0.0}, {"gap_max", 1.0}});
        report.runs.push_back({mode, 0, log});
    }
    const std::string html = report_html(report);
    CHECK(html.find("A &amp; B") != std::string::npos);
    CHECK(html.find("nan") == std::string::npos);
    CHECK(html.find("inf,") == std::string::npos);
    std::size_t links = 0;
    for (const char* word : {"src=", "href=", "<script", "url(", "@import"})
        links += html.find(word) != std::string::npos;
    CHECK(links == 0);
    CHECK(text_table(report.results) == "mode    end\nbf16   0.99\nnaive   0.3\n");
}
