// Which versions of the requests are spoken with a broker.

package conn

import (
	"context"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
)

// highest is the version of a request up to which the relay speaks it. Of InitProducerId it is the
// last one that is not flexible: kafka-go takes what an answer's tags claim for lengths, whatever
// it is, and v1 gives all there is to know.
func highest(key protocol.ApiKey) int16 {
	if key == protocol.InitProducerId {
		return 1
	}
	return key.MaxVersion()
}

// needed are the requests that a broker must know, with the lowest sufficient version. They give
// batches of magic 2, metadata requests that create no topics, and producer ids.
var needed = []struct {
	key     protocol.ApiKey
	version int16
}{{protocol.Produce, 3}, {protocol.Metadata, 4}, {protocol.InitProducerId, 0}}

// negotiate learns which versions of which requests the broker knows, and settles on the highest of
// each that both do.
func (c *Conn) negotiate(ctx context.Context) error {
	res, err := RoundTripAs[*apiversions.Response](ctx, c, DialTimeout, new(apiversions.Request))
	if err != nil {
		return err
	}
	if res.ErrorCode != 0 {
		return fmt.Errorf("ask broker %s for its versions: %w", c.Addr, kafkago.Error(res.ErrorCode))
	}
	offers := map[protocol.ApiKey]apiversions.ApiKeyResponse{}
	for _, offer := range res.ApiKeys {
		key := protocol.ApiKey(offer.ApiKey)
		offers[key] = offer
		if version := min(offer.MaxVersion, highest(key)); version >= max(offer.MinVersion, key.MinVersion()) {
			c.Versions[key] = version
		}
	}
	for _, need := range needed {
		offer, known := offers[need.key]
		if !known {
			return fmt.Errorf("broker %s has no %v request: Kafka 0.11 or newer is needed", c.Addr, need.key)
		}
		if version, both := c.Versions[need.key]; !both || version < need.version {
			return fmt.Errorf("broker %s has %v v%d to v%d, needed is one of v%d to v%d (Kafka 0.11 or newer)",
				c.Addr, need.key, offer.MinVersion, offer.MaxVersion, need.version, highest(need.key))
		}
	}
	return nil
}
