package relay

// Point names a moment at which a test may stop the process or misbehave.
type Point string

const (
	PointBeforePublish Point = "before-publish" // a record is about to be handed to the sink
	PointPublished     Point = "published"      // a record was handed to the sink
	PointStep          Point = "snapshot-step"  // all rows of a step of a snapshot were handed to the sink, the tracker does not know it yet
	PointAcked         Point = "acked"          // an acknowledgement arrived, the tracker does not know it yet
	PointBeforeSave    Point = "before-save"    // a checkpoint is about to be saved
	PointAfterSave     Point = "after-save"     // a save returned
)

// Points are failpoints; nil, as in production, has none.
type Points func(Point)

func (p Points) hit(at Point) {
	if p != nil {
		p(at)
	}
}
