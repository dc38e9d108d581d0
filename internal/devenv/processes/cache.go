// The folder of what is fetched or built once on a machine.

package processes

import (
	"os"
	"path/filepath"
)

// CacheDir is where the scripts keep what they have fetched.
func CacheDir() (string, error) {
	if os.Getuid() == 0 {
		return "/var/cache/cdc-relay", nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "cdc-relay"), err
}
