package process

import "fmt"

// Orphans returns what [EndOrphan] would end, and ends nothing.
func Orphans(id Identity) ([]int, error) {
	g, err := orphanedGroup(id)
	if err != nil {
		return nil, fmt.Errorf("looking for orphan %d: %w", id.PID, err)
	}
	defer g.close()
	pids, err := g.members()
	if err != nil {
		return nil, fmt.Errorf("looking for orphan %d: %w", id.PID, err)
	}
	return pids, nil
}
