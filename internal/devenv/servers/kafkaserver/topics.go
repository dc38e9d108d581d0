// The list of topics.

package kafkaserver

import (
	"context"
	"fmt"
	"slices"
)

// Topics are the names of all topics but Kafka's own, sorted.
func (k *Kafka) Topics(ctx context.Context) ([]string, error) {
	var names []string
	err := k.retry(ctx, func() error {
		res, err := ClusterMetadata(ctx, k.live(), nil)
		if err != nil {
			return err
		}
		names = nil
		for _, t := range res.Topics {
			if !t.IsInternal {
				names = append(names, t.Name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	slices.Sort(names)
	return names, nil
}
