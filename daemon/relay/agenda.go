package relay

import (
	"container/heap"
	"time"
)

// agenda is what the loop has to do later, behind one timer. It belongs to the
// loop.
type agenda struct{ alarms alarmHeap }

// alarm is one entry of the agenda.
type alarm struct {
	at    time.Time
	order uint64 // of entry, so that equal times ring as they were set
	do    func()
	index int // in the heap, -1 when it rang or was stopped
}

// after sets an alarm.
func (a *agenda) after(d time.Duration, do func()) *alarm { return a.at(time.Now().Add(d), do) }

func (a *agenda) at(t time.Time, do func()) *alarm {
	a.alarms.order++
	al := &alarm{at: t, order: a.alarms.order, do: do}
	heap.Push(&a.alarms, al)
	return al
}

// stop takes an alarm back; nil and rung ones are fine.
func (a *agenda) stop(al *alarm) {
	if al != nil && al.index >= 0 {
		heap.Remove(&a.alarms, al.index)
	}
}

// next returns when the first alarm rings.
func (a *agenda) next() (time.Time, bool) {
	if len(a.alarms.list) == 0 {
		return time.Time{}, false
	}
	return a.alarms.list[0].at, true
}

// ring does what is due.
func (a *agenda) ring(now time.Time) {
	for {
		at, ok := a.next()
		if !ok || at.After(now) {
			return
		}
		heap.Pop(&a.alarms).(*alarm).do()
	}
}

type alarmHeap struct {
	list  []*alarm
	order uint64
}

func (h *alarmHeap) Len() int { return len(h.list) }

func (h *alarmHeap) Less(i, j int) bool {
	a, b := h.list[i], h.list[j]
	if a.at.Equal(b.at) {
		return a.order < b.order
	}
	return a.at.Before(b.at)
}

func (h *alarmHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].index, h.list[j].index = i, j
}

// Push implements heap.Interface.
func (h *alarmHeap) Push(x any) {
	al := x.(*alarm)
	al.index = len(h.list)
	h.list = append(h.list, al)
}

// Pop implements heap.Interface.
func (h *alarmHeap) Pop() any {
	last := len(h.list) - 1
	al := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	al.index = -1
	return al
}
