// The invariants, in one place: what each says and which tests prove it.

package docs

// invariant is one promise of the relay. test/INVARIANTS.md is written from it.
type invariant struct {
	id    string
	short string // its line in ARCHITECTURE.md
	full  string
	tests []tests
	also  string // what proves it and is no test by name
}

// tests are tests in a folder or below it, separated by blanks.
type tests struct{ dir, names string }

var invariants = []invariant{
	{
		id: "I1", short: `The reported position never passes a transaction that has an unsettled event.`,
		full: `The reported flush position never passes a transaction that has an event which is not settled. It only
			increases. It is exactly a transaction's end LSN, a keepalive's position received outside a transaction, or the slot's
			own position at the start of a session. There is no arithmetic: one byte more skips a neighbour's commit.`,
		tests: []tests{
			{"internal/relay/inflight", "TestTrackerAgainstDumb TestTrackerRefusesToPassAnUnsettledCommit"},
			{"internal/relay", "TestStories"},
			{"internal/decode", "TestStories"},
			{"internal/replication", `TestFlushNeverPassesWhatIsSettled TestStopBetweenCommitsThatAreAdjacent
				TestReportOutsideOfItsBoundsEndsTheSession TestReportWaitsForTheStandbys`},
			{"test/fault", "TestKilledBeforeTheConfirmArrives"},
			{"test/sim", "TestSeeds"},
		},
	},
	{
		id: "I2", short: `Settled means durable: at the broker, or committed as a row in the source database.`,
		full: `Settled means durable. The broker confirmed the event, or its row is committed, deferred or as a dead letter. With a failover slot the row is also on the standbys of synchronized_standby_slots before its event counts as
			settled for the slot.`,
		tests: []tests{
			{"internal/sink/rabbit", `TestDestinationFaults TestProfileReturns TestProfileReturnTakesItsDestination
				TestProfileReturnOfNobody TestReturnOfOneOfTwo`},
			{"internal/sink/kafka", "TestHistories TestSequences TestStorageTakenBack TestLateAnswer TestCluster"},
			{"internal/kafkaclient", "TestTailShowsWhatIsConfirmed TestTailCountsBehindAConfirm"},
			{"internal/relay", "TestStories"},
			{"internal/relay/order", "TestStories"},
			{"internal/retry", `TestSettledOnceCommitted TestUnknownDeferIsRepeatedFirst TestUnknownResultsAreRepeatedFirst
				TestAnswerLost TestStatementLate TestKnown`},
			{"test/fault", `TestKilledBeforeTheEventIsSent TestKilledBeforeTheReportIsSent TestKilledInTheRetryTable
				TestConnectionOfTheRetryTableLost TestPostgresCrashesWithTheBrokerAway`},
			{"test/sim", "TestSeeds"},
		},
	},
	{
		id: "I3", short: `Within an ordering group publish order is commit order. A dead letter leaves its group.`,
		full: `Within an ordering group publish order is commit order, through outages, retries, failover and restarts
			(ordering: key). A dead letter leaves its group: later events go on without it, unless on_dead_letter is block.`,
		tests: []tests{
			{"internal/relay/order", "TestStories TestOrderIsKeptWhateverComesLate"},
			{"internal/sink/rabbit", "TestPipelinedKeyStopsAtItsRejection TestKeyGoesOnElsewhere"},
			{"internal/sink/kafka", "TestHistories TestOutcomes TestLanesStay TestReadBackSendsAgain"},
			{"internal/retry", `TestEachWantIsAnswered TestNothingIsReadThatIsNotAcknowledged
				TestFreedRowsComeBeforeLaterOnes TestUnknownResultsAreRepeatedFirst TestStartWalks
				TestForgottenDuringAWalk TestWalkAfterAStatementThatFailed TestKnown TestPostgres`},
			{"test/fault", `TestOrderOverLostConnections TestKafkaPartitionsAdded TestDestinationBroken
				TestLaterEventsWaitBehindADeferredEvent TestDeadIsNotPublishedAfterACrash
				TestConfigurationChangesBetweenCrashAndRedelivery TestReplayOfAKeyWithDeferredEventsBehind
				TestRowsOfTheSystemBefore TestDiskGuard`},
			{"test/sim", "TestSeeds"},
		},
		also: "the conformance suite of sinks on each sink; every test of `test/fault`, through the checker",
	},
	{
		id: "I4", short: `An outage, a fault of a destination and a fault of an event are never mixed.`,
		full: `Three kinds of failure are never mixed. Unavailable: lanes wait, no attempt is spent, nothing ages, and nothing is
			deferred except by the disk guard. Destination fault: what the broker's answer accuses is paused (an exchange, an
			exchange and routing key, a topic, a partition). Its events wait in the retry table and the others flow. None is a
			dead letter before retry.destination_max_age. Event fault: that event alone leaves, to a retry when it may pass later, else to
			the dead letters.`,
		tests: []tests{
			{"internal/sink/rabbit", `TestDestinationFaults TestUnconfirmed TestProbesOfAStuckQueueLeaveRoom
				TestTooLargeForTheBroker TestMessageThatKillsTheChannel TestHeaderThatKillsTheConnection
				TestInternalError TestConfirmClock TestRejectedUnsent TestOtherCluster
				TestRefusalOfAnEarlierLogin TestIssuer`},
			{"internal/sink/kafka", `TestOutcomes TestAnswers TestDoubtIsNotRejected TestLeaderlessIsNotAccused
				TestNoPartitionHasEnoughReplicas TestOthersTakeBatches TestNoEventIsAccusedOverItsPartition
				TestConformance`},
			{"internal/relay/order", "TestStories"},
			{"internal/retry", "TestLonelyPause TestOldRowsAreFound TestAttemptsAreTold"},
			{"test/fault", `TestUnroutableEventIsDeferred TestAttemptsAreSpent TestDestinationBroken TestQuorumQueueWithoutMajority
				TestOnePoisonKeyAmongAThousand TestBrokerKilledUnderLoad TestKafkaTopicMadeAgain`},
			{"internal/guard", "TestDecision"},
			{"test/cli", "TestSecureKafka"},
		},
	},
	{
		id: "I5", short: `Memory is bounded, whatever the size of a transaction, a backlog or the retry table.`,
		full: `Memory is bounded, whatever the size of a transaction, a backlog or the retry table, and whatever is in a row. The
			in-flight budget bounds what is on its way. What is made of an event has a budget of bytes and one of work; events that
			need much of them are made one at a time. On RabbitMQ the connections' write buffers come on top, with a message of each
			lane. On Kafka the batches come on top: 32 MiB and 64 KiB for each partition (with compression another copy), and two
			requests to each broker, of 4 MiB or one larger record. For the retry table there are 34 MiB for 100,000 ordering groups, a statement of 2 MiB, and
			8 MiB of rows that lanes have, or one larger row. The largest row on its way is there in several copies: as it was read,
			as it was converted (in a database that is not UTF-8), in the in-flight budget, as it is written. With
			source.max_event_bytes no larger row is among them, except one that is replayed.`,
		tests: []tests{
			{"internal/relay/inflight", "TestChunksBoundMemory TestTrackerListIsBounded"},
			{"internal/relay", "TestCallsAreBounded"},
			{"internal/relay/order", "TestStories TestGroupsThatStayDoNotKeepTheOthers"},
			{"internal/retry", "TestRounds TestBudget TestLaneThatStandsStill"},
			{"test/sim", "TestSeeds"},
			{"internal/sink", "TestLargeEventsAreMadeOneAtATime TestReuse"},
			{"internal/kafkaclient", "TestPick TestBatchIsUsedAgain TestClaims TestRecordClaims"},
			{"internal/sink/kafka", "TestLargeBatchesWaitForRoom TestHeadersAreBounded"},
			{"internal/sink/rabbit", "TestHeadersAreBounded TestChannelThatKeepsALargeReturn"},
			{"internal/sink/rabbit/conn", "TestReturnsAreStrippedWhileACallWaits"},
			{"internal/debezium", "TestRecordsAreBounded TestRoutesAreForgotten"},
			{"internal/debezium/connect", "TestExpansionsAreBounded"},
			{"internal/replication/source", "TestReader"},
			{"test/fault", "TestRowLargerThanTheMemory TestHostileRows TestHostileRowsDeferred"},
		},
		also: "`make bench` compares the peak memory",
	},
	{
		id: "I6", short: `Reports to PostgreSQL flow while delivery is blocked.`,
		full: `The reader owns reads of the replication connection, the reporter owns writes, and nobody else touches it.
			Reports flow while delivery is blocked.`,
		tests: []tests{
			{"internal/replication", "TestSessionSurvivesBackPressure TestIdleRelayAnswersTheServer"},
		},
		also: "all of them under the race detector",
	},
	{
		id: "I7", short: `A slot or server that was lost, re-created, moved or rolled back is never silently used.`,
		full: `A slot or a server that was lost, re-created, moved, rolled back, or belongs to another system or timeline is never
			silently used or replaced. The relay stops with exit 3, and says what may be missing and what to run. After a promotion
			it goes on when the promoted server proves that nothing is missing.`,
		tests: []tests{
			{"internal/replication/slot", "TestPromotionIsProven TestWhatIsNoPromotion"},
			{"internal/replication", `TestPromotion TestRolledBackServer TestAcceptedWhileARelayLeads
				TestAcceptedLossWhoseSlotCannotBeMade TestSlotRecreated TestSlotDroppedWhileDown
				TestSlotDroppedWhileTheStreamIsCut TestSlotMovedByHandAfterACleanStop
				TestSlotMovedByHandWhileTheStreamIsCut TestSlotMovedByAProgramThatLeaves
				TestSlotHeldByAnotherProgram TestSlotHeldForAMoment TestSlotOfAnotherKind TestSlotWithoutARecord
				TestSlotInvalidatedByTheServer TestAnotherPublicationSystemOrTimeline TestSeveralHosts
				TestPoolStaysOnTheServerOfTheStream TestTakeoverIsRefused TestTakeoverFromASlotThatIsGone
				TestTakeover TestRecoverCutOff TestSlotAcceptedOnAnotherServer`},
			{"test/fault", "TestOtherServer TestPgUpgrade"},
			{"test/cli", "TestAcceptBadInput TestAfterExit3"},
		},
	},
	{
		id: "I8", short: `Nothing is dropped: not what is too large, unreadable, unroutable or cannot be deferred.`,
		full: `Nothing is dropped, ever: not what is oversized, undecodable, unroutable or cannot be deferred. There is no switch
			to ignore errors. A table or prefix that the slot has relayed, or that the publication lists by name, and that it still
			sends, is never skipped without an operator's word.`,
		tests: []tests{
			{"internal/relay/order", "TestStories TestOrderIsKeptWhateverComesLate"},
			{"internal/retry", `TestRefusedRowIsIsolated TestLargeRows TestRowThatCannotBeRead TestReadThatFailsIsMadeAgain
				TestRefusedResult TestStartWalks TestPausedDestOpensDuringItsWalk
				TestIncompleteWalkBeginsAgain TestWalkOfLargeRows TestWalkBesideALaneThatStandsStill`},
			{"internal/replication", `TestRollout TestRolloutIsRolledBack TestLeftOutTableWhoseRecordChanges
				TestPublicationSharedWithAnotherProgram TestPrefixLeavesTheConfiguration
				TestRowsOfATableThatWasListed TestOnlyTheLeaderRemembers TestPartitionThatIsNotLogged
				TestRetryTableThatIsNotLogged TestSlotRenamedInTheConfiguration
				TestFirstStartRefusesARowWhoseTransactionWasOpen TestChangesThatHideRows
				TestPublicationAlteredThereAndBack TestTableReplacedWhileRunning
				TestListedTableTakesTheName TestTableThatHadTheNameForAWhile
				TestTableThatLostItsNameWhileDown TestColumnDroppedWhileRunning
				TestColumnReplacedDuringARollout TestDefaultColumnRenamedWhileRunning TestMessages
				TestMessageThatCannotBeRead TestDatabaseOfAnotherEncoding TestNoEncoding TestRowThatCannotBeConverted TestSlotOfDebezium
				TestSlotWithRowsOfPartitions TestSlotWithRowsOfPartitionsOfAllTables
				TestForeignTableThatWasAPartitionForAWhile TestTakeoverWithASlotThatIsThereAlready
				TestTakeover TestTakeoverWaitsForTheOtherSlot TestTakeoverAfterACrashAtEachStep
				TestTakeoverBetweenCommitsThatAreAdjacent
				TestTakeoverWithATransactionOlderThanThePublication TestTakeoverWithASlotThatIsNoCopy TestTakeoverFromAnotherPlugin`},
			{"internal/decode", "TestStories TestValidRowsAgainstOracle"},
			{"test/fault", `TestDeletedRowsAreDelivered TestTakeoverFromAnotherProgram TestUndecodable TestRowTooLarge
				TestRowThatPostgreSQLRefuses TestDeferredEventSurvivesAStop`},
			{"test/sim", "TestSeeds"},
		},
	},
	{
		id: "I9", short: "A former leader changes nothing in the schema `cdc_relay`.",
		full: `A fenced (former) leader changes nothing in the schema cdc_relay: not how far may be reported, and no row of the
			retry table.`,
		tests: []tests{
			{"internal/replication", `TestFlushLimitIsRaisedOnlyByTheHolderUnderItsEpoch TestLeaderReturnsAfterAnotherLed
				TestLeaderCutOffSilently TestTakeoverEndsAStatementOfAFormerLeader`},
			{"internal/retry", "TestPostgres TestStatementLate TestFencedLeaderEnds TestReclaimFence"},
			{"internal/dlq", "TestFencedLeader TestMirrorOfAFormerLeader"},
			{"internal/retention", "TestFencedLeaderDeletesNothing"},
			{"test/fault", "TestStoppedInTheRetryTable"},
			{"test/sim", "TestSeeds"},
		},
	},
	{
		id: "I10", short: `The relay never harms the primary.`,
		full: `The relay never harms the primary. It does not delay its shutdown, does not become its synchronous standby, does
			not fill its disk silently, writes nothing while it is idle, and waits at most 100 ms for a lock of a table that is not
			its own. A process that is frozen keeps no such lock: its sessions end.`,
		tests: []tests{
			{"internal/replication", `TestServerStopsAsFastWithARelay TestServerStopsWhileTheLineIsCreated
				TestBusyWalsenderIsWaitedFor TestOtherPublishedTableIsLocked
				TestRelayThatBecomesASynchronousStandbyStops TestNamesStandby TestIdleRelayWritesNothing
				TestServerWithoutFreeConnections TestIdleOutboxMovesWithOtherTables
				TestNewLeaderEndsTheSessionsOfFormerOnes TestRecoverFrozenAsItReads`},
			{"internal/guard", "TestRoomIsCounted"},
			{"internal/retention", "TestLockedRowsAreLeftOut TestLockedTableIsLeftOut"},
			{"test/fault", "TestIdleProcessWritesNothing TestDiskGuard TestDiskGuardIsFull TestFrozenWithALockOnTheOutbox"},
			{"test/cli", "TestRetainedWALIsShown"},
		},
	},
	{
		id: "I11", short: "An event's effect is in the consumer's database exactly once (package `inbox`).",
		full: `The effect of an event is in the consumer's database exactly once. It is committed together with the event's
			record. A message is acknowledged only after that commit (and after a synchronous standby has it), or after the broker
			has confirmed its copy for a later attempt or as a dead letter.`,
		tests: []tests{
			{"inbox/test/core", `TestEffectOnce TestTheOtherHasTheEffect TestConnectionLostInCommit TestRepeats
				TestStricterIsolation TestMisuseOfTheTransaction TestPublishRefused TestIDs TestNotReady
				TestSynchronousStandbyAway TestHandlersOfSQL TestConnectionOfSQLLostInCommit`},
			{"inbox/test/rabbit", "TestLadder TestTwoProcesses TestStop TestDeletedQueues"},
			{"inbox/kafka", "TestPartition TestJudged"},
			{"inbox/test/kafka", "TestLadder TestStop TestGrace TestLost TestMembers TestTwoAtOnce"},
			{"test/inbox/faults", "TestRabbitMQ TestKafka"},
		},
	},
	{
		id: "I12", short: `What was sent is known, never guessed: no row is deleted or called delivered that the broker did not confirm.`,
		full: `What was sent is known, never guessed. Nothing deletes an outbox row, leaves one out of a recovery, or tells an operator
			that one was delivered, on the strength of xmin, a name, an id alone, a clock, or a number that another table moved. A position is reported only once
			the confirms of all events below it are recorded.`,
		tests: []tests{
			{"internal/retention", `TestOnlySentRowsAreDeleted TestAnotherTable TestEverySlotCounts TestPartitions
				TestPartsOfWhatRunsStay TestUnsettledTransactionsStay TestRowsBesideADeadLetterStay TestLockedRowsAreLeftOut TestIDs`},
			{"internal/dlq", "TestEventWithoutARow"},
			{"internal/replication", "TestRecoverOnlyWhatWasNotSent"},
			{"test/cli", "TestUnsentRowsStay TestUnsentRowsAreRecovered TestHistories TestTransactionsGivenAgain TestAnotherSystem"},
		},
	},
}
