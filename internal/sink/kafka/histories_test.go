//go:build !nightly

package kafka

import ()

const usualHistories = 3
