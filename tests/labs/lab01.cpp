#include "notebooks/labs/adapter.hpp"
#include "tests/arrays.hpp"
#include "tests/catch.hpp"
#include "tests/compare.hpp"

namespace {

const float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

// Every BF16 pattern but NaN: all ties and their neighbours are among them.
Floats all_bf16() {
    Floats x;
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
        const float value = quads::bf16_from_bits(static_cast<std::uint16_t>(bits));
        if (!std::isnan(value)) x.push_back(value);
    }
    return x;
}

}  // namespace

TEST_CASE("1. E2M1 decodes its 16 codes", "[lab01]") {
    Floats found, expected;
    for (int code = 0; code < 16; ++code) {
        found.push_back(lab::e2m1_decode(static_cast<std::uint8_t>(code)));
        expected.push_back(code < 8 ? kMagnitudes[code] : -kMagnitudes[code - 8]);
    }
    REQUIRE_SAME_BITS(found, expected);
}

TEST_CASE("2. E2M1 encodes to the nearest", "[lab01]") {
    for (int code = 0; code < 8; ++code) {
        INFO("magnitude " << kMagnitudes[code]);
        REQUIRE(int(lab::e2m1_encode(kMagnitudes[code])) == code);
        REQUIRE(int(lab::e2m1_encode(-kMagnitudes[code])) == code + 8);  // -0 too
        if (code == 7) continue;
        const float middle = (kMagnitudes[code] + kMagnitudes[code + 1]) / 2;
        REQUIRE(int(lab::e2m1_encode(std::nextafter(middle, 0.0f))) == code);
        REQUIRE(int(lab::e2m1_encode(std::nextafter(middle, 9.0f))) == code + 1);
    }
}

TEST_CASE("3. E2M1 ties go to the even code, large values saturate, NaN is 6", "[lab01]") {
    const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    const int even[] = {0, 2, 2, 4, 4, 6, 6};
    for (int i = 0; i < 7; ++i) {
        INFO("tie " << ties[i]);
        REQUIRE(int(lab::e2m1_encode(ties[i])) == even[i]);
        REQUIRE(int(lab::e2m1_encode(-ties[i])) == even[i] + 8);
    }
    REQUIRE(int(lab::e2m1_encode(1e30f)) == 7);
    REQUIRE(int(lab::e2m1_encode(-INFINITY)) == 15);
    REQUIRE(int(lab::e2m1_encode(NAN)) == 7);
}

TEST_CASE("4. E4M3 decodes its 256 codes", "[lab01]") {
    for (int code = 0; code < 256; ++code) {
        const int magnitude = code & 0x7F;
        const double value = magnitude < 8 ? magnitude / 512.0 : std::ldexp(8 + magnitude % 8, magnitude / 8 - 10);
        const float found = lab::e4m3_decode(static_cast<std::uint8_t>(code));
        INFO("code " << code);
        if (magnitude == 0x7F)
            REQUIRE(std::isnan(found));
        else
            REQUIRE_SAME_BITS(Floats{found}, Floats{static_cast<float>(code < 128 ? value : -value)});
    }
}

TEST_CASE("5. E4M3 encodes to the nearest, ties to even, subnormals too", "[lab01]") {
    for (int code = 0; code < 0x7E; ++code) {
        const float below = quads::e4m3_decode(static_cast<std::uint8_t>(code));
        const float above = quads::e4m3_decode(static_cast<std::uint8_t>(code + 1)), middle = (below + above) / 2;
        INFO("between codes " << code << " and " << code + 1);
        REQUIRE(int(lab::e4m3_encode(below)) == code);
        REQUIRE(int(lab::e4m3_encode(middle)) == code + code % 2);
        REQUIRE(int(lab::e4m3_encode(std::nextafter(middle, 0.0f))) == code);
        REQUIRE(int(lab::e4m3_encode(std::nextafter(-middle, -999.0f))) == (code + 1) + 128);
    }
    REQUIRE(int(lab::e4m3_encode(1e30f)) == 0x7E);
    REQUIRE(int(lab::e4m3_encode(NAN)) == 0x7F);
}

TEST_CASE("6. both encoders are right for every BF16 value", "[lab01]") {
    for (const float x : all_bf16()) {
        const int e2m1 = lab::e2m1_encode(x), e4m3 = lab::e4m3_encode(x);
        if (e2m1 == quads::e2m1_encode(x) && e4m3 == quads::e4m3_encode(x)) continue;
        INFO("x = " << x);
        REQUIRE(e2m1 == quads::e2m1_encode(x));
        REQUIRE(e4m3 == quads::e4m3_encode(x));
    }
}

TEST_CASE("7. codes are packed with the even column low and zeros behind", "[lab01]") {
    const std::vector<std::uint8_t> codes{1, 2, 3, 15, 8};
    std::vector<std::uint8_t> packed(8, 0xAA);
    lab::pack_row(codes.data(), 5, packed.data());
    REQUIRE_SAME_BITS(packed, (std::vector<std::uint8_t>{0x21, 0xF3, 0x08, 0, 0, 0, 0, 0}));
}
