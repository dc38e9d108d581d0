// Quotas of producers.

package kafkaserver

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go/protocol/alterclientquotas"
	"github.com/segmentio/kafka-go/protocol/describeclientquotas"
)

const (
	producerByteRate = "producer_byte_rate"
	clientIDEntity   = "client-id"
	exactMatch       = 0 // of DescribeClientQuotas' kinds of match
)

// SetProducerQuota allows all producers of a client id together so many bytes per second on each
// broker; 0 takes the quota back. What is above it is stored all the same: the broker then reads
// nothing more from that connection for as long as makes up for it, also when the quota is taken
// back meanwhile. It returns when every running broker knows; a broker obeys some milliseconds
// later.
func (k *Kafka) SetProducerQuota(ctx context.Context, clientID string, bytesPerSecond float64) error {
	err := change(ctx, k, &alterclientquotas.Request{Entries: []alterclientquotas.Entry{{
		Entities: []alterclientquotas.Entity{{EntityType: clientIDEntity, EntityName: clientID}},
		Ops:      []alterclientquotas.Ops{{Key: producerByteRate, Value: bytesPerSecond, Remove: bytesPerSecond == 0}},
	}}}, func(res *alterclientquotas.Response) error {
		return KafkaError(res.Results[0].ErrorCode, res.Results[0].ErrorMessage)
	})
	if err == nil {
		err = k.everywhere(ctx, func(addr string) (bool, error) {
			now, err := producerQuota(ctx, addr, clientID)
			return now == bytesPerSecond, err
		})
	}
	if err != nil {
		return fmt.Errorf("set quota of client %s: %w", clientID, err)
	}
	return nil
}

// producerQuota is what one broker knows of a client's quota; 0: it has none.
func producerQuota(ctx context.Context, addr, clientID string) (float64, error) {
	res, err := askOne[*describeclientquotas.Response](ctx, addr, &describeclientquotas.Request{
		Components: []describeclientquotas.Component{{EntityType: clientIDEntity, MatchType: exactMatch, Match: clientID}},
		Strict:     true,
	})
	if err != nil {
		return 0, err
	}
	if err := KafkaError(res.ErrorCode, res.ErrorMessage); err != nil {
		return 0, err
	}
	for _, entry := range res.Entries {
		for _, v := range entry.Values {
			if v.Key == producerByteRate {
				return v.Value, nil
			}
		}
	}
	return 0, nil
}
