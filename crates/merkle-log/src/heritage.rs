//! Adler-32 as heritage trees use it.

/// Adler-32 of `left` followed by `right`.
pub(crate) fn adler32(left: &[u8], right: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    /// So many bytes cannot overflow the sums of RFC 1950.
    const RUN: usize = 5552;
    let (mut low, mut high) = (1_u32, 0_u32);
    for run in left.chunks(RUN).chain(right.chunks(RUN)) {
        for byte in run {
            low += u32::from(*byte);
            high += low;
        }
        low %= MODULUS;
        high %= MODULUS;
    }
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adler32_is_that_of_rfc_1950() {
        assert_eq!(adler32(b"Wiki", b"pedia"), 0x11e6_0398);
        assert_eq!(adler32(b"", b""), 1);
        // The longest run of the largest bytes, where sums come nearest to overflow.
        let long = vec![255_u8; 100_000];
        let (low, high) = long.iter().fold((1_u64, 0_u64), |(low, high), byte| {
            let low = (low + u64::from(*byte)) % 65_521;
            (low, (high + low) % 65_521)
        });
        assert_eq!(u64::from(adler32(&long, &[])), high << 16 | low);
    }
}
