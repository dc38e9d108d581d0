// The compressions that Kafka knows, by the names of its compression.type.

package batch

import (
	"fmt"

	"github.com/segmentio/kafka-go/compress"
)

// ParseCompression reads a name of the configuration. The codecs are kafka-go's: snappy in the
// framing of xerial's Java library and lz4 in frames of independent blocks, as Java's consumer
// reads them.
func ParseCompression(name string) (compress.Compression, error) {
	switch name {
	case "", "none":
		return compress.None, nil
	case "gzip":
		return compress.Gzip, nil
	case "snappy":
		return compress.Snappy, nil
	case "lz4":
		return compress.Lz4, nil
	case "zstd":
		return compress.Zstd, nil
	}
	return 0, fmt.Errorf("compression %q is not one of none, gzip, snappy, lz4, zstd", name)
}
