// Lone surrogates: halves of UTF-16 pairs, which an expanded JSON payload can hold.

package connect

// Surrogate reads the three bytes that stand for a lone surrogate.
func Surrogate(s string) (uint16, bool) {
	if len(s) < 3 || s[0] != 0xED || s[1] < 0xA0 || s[1] > 0xBF || s[2] < 0x80 || s[2] > 0xBF {
		return 0, false
	}
	return 0xD000 | uint16(s[1]&0x3F)<<6 | uint16(s[2]&0x3F), true
}
