// Package hidden reaches what no user may set: these tests are in another module than the inbox,
// whose users do not need what starts servers.
package hidden

import "reflect"

// Set sets a field of the struct that a pointer points to.
func Set(pointer any, field string, value any) {
	f := reflect.ValueOf(pointer).Elem().FieldByName(field)
	reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().Set(reflect.ValueOf(value))
}
