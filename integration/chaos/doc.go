// Package chaos is the seeded fault test.
package chaos
