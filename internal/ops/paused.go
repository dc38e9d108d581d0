// How a paused destination is named in `deferred retry`. Status and console print the command with
// it.

package ops

import (
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// destinationTitle matches the titles that sinks give to destinations.
var destinationTitle = lazy.Regexp(`^(?:exchange|topic) ("(?:[^"\\]|\\.)*")(?:, routing key ("(?:[^"\\]|\\.)*"))?$`)

// RetryName returns the destination in the form that `deferred retry` takes. It returns "" for a
// destination without a name, and for one with a placeholder, which stands for many.
func (p *Paused) RetryName() string {
	found := destinationTitle().FindStringSubmatch(p.Destination)
	if found == nil {
		return ""
	}
	name, err := strconv.Unquote(found[1])
	if err != nil || name == "" {
		return ""
	}
	if found[2] != "" {
		key, err := strconv.Unquote(found[2])
		if err != nil {
			return ""
		}
		name += "/" + key
	}
	if strings.Contains(name, "{") {
		return ""
	}
	return name
}
