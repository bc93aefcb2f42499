// The only file of the tests that includes Catch2. Versions 2 and 3 both work; matchers and reporters differ, keep out.
// Tags: [.slow] hides a test from `make test`, `make exhaustive` runs it.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)  // version 3
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
using Catch::Approx;
#else  // version 2
#include <catch2/catch.hpp>
#endif
