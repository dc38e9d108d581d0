// The version and the build of this binary.

package command

import (
	"runtime"
	"runtime/debug"
)

// Build is what is known of this binary.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // "" when it was built outside a checkout
	Modified bool   `json:"modified"` // the checkout had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ThisBuild is this binary. version is the linker's; "" for the module's own.
func ThisBuild(version string) Build {
	b := Build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

// String is the build on one line.
func (b Build) String() string {
	out := "cdc-relay " + b.Version
	if b.Commit != "" {
		out += " (" + b.Commit
		if b.Modified {
			out += ", modified"
		}
		out += ")"
	}
	return out + " " + b.Go + " " + b.Platform
}
