// Helpers for tests of bad input and of files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "reference/check.hpp"

// The sentence with which `body` refuses, "" where it does not refuse.
template <typename Body>
std::string refusal(const Body& body) {
    try {
        body();
    } catch (const quads::Error& error) {
        return error.what();
    }
    return "";
}

// A folder that goes away with the object.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "quads_test_XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder can be made");
        path_ = name;
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};
