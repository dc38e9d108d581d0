// Which hosts are this machine itself.

package sink

import (
	"net"
	"strings"
)

// Loopback reports whether a host of an address is this machine: nobody is in between.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
