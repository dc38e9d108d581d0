// Sizes that may be absent, or a part of something.

package setting

import (
	"fmt"
	"strconv"
	"strings"
)

// Share is a number of bytes, or a percentage of something; its zero value is neither.
type Share struct {
	Bytes   int64
	Percent int // 1 to 100; 0: Bytes counts
}

// IsSet reports whether it is one of them.
func (s Share) IsSet() bool { return s.Bytes > 0 || s.Percent > 0 }

func (s Share) String() string {
	switch {
	case s.Percent > 0:
		return strconv.Itoa(s.Percent) + "%"
	case s.Bytes > 0:
		return ShowSize(s.Bytes)
	}
	return ""
}

// SizeOrPercent is a number of bytes from low to high, a percentage from 1 to 100, or nothing.
func SizeOrPercent(name string, low, high int64, at *Share) Key {
	form := AnyOf(byteCount(low, high), Form{"type": "string", "pattern": `^\s*[0-9]+\s*%$`}, Form{"const": ""})
	return Scalar(name, form, at, func(s string) (Share, error) {
		if s == "" {
			return Share{}, nil
		}
		if digits, is := strings.CutSuffix(s, "%"); is {
			if n, err := strconv.Atoi(strings.TrimSpace(digits)); err == nil && n >= 1 && n <= 100 {
				return Share{Percent: n}, nil
			}
		} else if n, ok := ParseSize(s); ok && n >= low && n <= high {
			return Share{Bytes: n}, nil
		}
		return Share{}, fmt.Errorf("is %q, want a size such as 2GiB, from %s to %s, or a percentage from 1%% to 100%%", s, ShowSize(low), ShowSize(high))
	}, func(s Share) string { return Quote(s.String()) })
}

// SizeOrNone is a number of bytes from low to high, or nothing.
func SizeOrNone(name string, low, high int64, at *int64) Key {
	return Scalar(name, AnyOf(byteCount(low, high), Form{"const": ""}), at, func(s string) (int64, error) {
		if s == "" {
			return 0, nil
		}
		if n, ok := ParseSize(s); ok && n >= low && n <= high {
			return n, nil
		}
		return 0, fmt.Errorf("is %q, want bytes or a size such as 10GiB, from %s to %s", s, ShowSize(low), ShowSize(high))
	}, func(n int64) string {
		if n == 0 {
			return Quote("")
		}
		return ShowSize(n)
	})
}
