// Lab 01: two small floats. Read notebook 01 and the table at the top of reference/codec.hpp (below it is a solution).
//
// E2M1 has 16 codes: write down the eight magnitudes, then the seven midpoints between neighbours. Encoding is counting
// the midpoints below |x|; what happens on a midpoint is the lab. E4M3 has subnormals: below 2^-6, codes are multiples
// of 2^-9. Check with: make lab LAB=01
#include "notebooks/labs/labs.hpp"

namespace student {

std::uint8_t e2m1_encode(float x) { throw NotWritten("e2m1_encode"); }

float e2m1_decode(std::uint8_t code) { throw NotWritten("e2m1_decode"); }

std::uint8_t e4m3_encode(float x) { throw NotWritten("e4m3_encode"); }

float e4m3_decode(std::uint8_t code) { throw NotWritten("e4m3_decode"); }

void pack_row(const std::uint8_t* codes, int K, std::uint8_t* packed) { throw NotWritten("pack_row"); }

}  // namespace student
